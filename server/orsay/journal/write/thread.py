"""Writer thread of the journal: takes rows from a queue, commits them in batches, retries after a failure."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeAlias

from sqlalchemy import Connection

from ...errors import JournalDown
from ...logs import get_logger
from ..database import Store, quarantine
from ..driver_errors import is_about_rows, journal_down
from ..records import (
    CallEnded,
    CallStarted,
    Prompted,
    RolloutLogged,
    Row,
    SandboxUsed,
    SessionEnded,
    SessionOpened,
)
from .batch import encode, without
from .statements import PostgresStatements, SqliteStatements, Statements, write_all, write_row
from .wal import Segment

__all__ = ["Chore", "WriterThread"]

Chore: TypeAlias = Callable[[Connection], None]

_BATCH_BYTES = 16 * 1024 * 1024  # of results
_LOOK_S = 2.0  # interval of checks that the file still exists
_CLOSING_RETRY_S = 0.05  # between attempts after close
_RESTS = 4  # pause after a chore, in multiples of its duration
_NONE: frozenset[int] = frozenset()

log = get_logger("journal")


class WriterThread:
    """Single consumer of ``queue``: rows, and segments of the write-ahead log.

    ``report`` is called in the thread after each batch, with the number of settled entries of the queue and
    the numbers of those given up; ``give_back`` when the rows of a segment are in the tables.

    The queue, ``asleep`` and ``wake`` are for one other thread, that of the event loop.
    """

    most_rows = 1_000
    """Limit of rows in one batch."""

    def __init__(
        self,
        store: Store,
        report: Callable[[int, frozenset[int]], None],
        *,
        give_back: Callable[[Segment], None],
        retry_s: float,
        close_s: float,
    ) -> None:
        self.queue: deque[Row | Segment] = deque()
        self.asleep = False
        self.committed = 0
        self.trouble: JournalDown | None = None
        self.trouble_since = 0.0
        self.unknown: set[int] = set()
        """Sessions that are not in the journal: their rows are given up."""
        self._store = store
        self._report = report
        self._give_back = give_back
        self._retry_s = retry_s
        self._close_s = close_s  # after close, in trouble
        self._look_at = 0.0
        self._chores: deque[tuple[Chore, Callable[[bool], None]]] = deque()
        self._chore_at = 0.0
        self._signal: SimpleQueue[None] = SimpleQueue()
        self._close_at: float | None = None
        self._closing = threading.Event()
        self._when_closed: Callable[[], None] | None = None
        self._live: set[int] = set()
        self._settled = 0
        self._segment: Segment | None = None  # which is being written
        self._statements: Statements | None = None
        self._release: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="orsay-journal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread, after a row was put into the queue while it was ``asleep``."""
        self.asleep = False
        self._signal.put(None)

    def do(self, chore: Chore, done: Callable[[bool], None]) -> None:
        """Run a small task between batches; ``done`` is called in the thread, with False if it failed.

        If the journal closes first, ``done`` is not called.
        """
        self._chores.append((chore, done))
        self._signal.put(None)

    def close(self, closed: Callable[[], None]) -> None:
        """Write the remaining rows, then end and call ``closed`` in the thread."""
        self._when_closed = closed
        self._close_at = time.monotonic()
        self._closing.set()
        self._signal.put(None)

    # the thread

    def _run(self) -> None:
        try:
            self._serve()
        except Exception:
            log.exception("journal_thread_failed")
        finally:
            self.asleep = False
            self._drop()
            self._leave()
            if self._when_closed is not None:
                self._when_closed()

    def _serve(self) -> None:
        """Main loop until closed: open the journal, take rows, commit them, retry after a failure."""
        rows: list[Row] = []
        attempts = 0
        while True:
            try:
                if self._statements is None:
                    self._open()
                lost = self._write(rows) if rows else _NONE
                if self._segment is not None:
                    lost = self._write_segment(self._segment)
                    self._settled += 1
                    self._segment = None
                self._settled += len(rows)
                self._works(lost)
                rows, attempts = [], 0
                if self._chores:
                    self._do_chore()
            except Exception as exc:
                self._drop()
                attempts += 1
                if self._given_up(rows):
                    return
                self._failed(exc, attempts)
                continue
            rows = self._take()
            if not rows and self._segment is None:
                return

    def _take(self) -> list[Row]:
        """Wait for rows and take a bounded number, or for a segment (``_segment``). Empty when closed."""
        queue = self.queue
        while not queue:
            if self._close_at is not None:
                return []
            if self._chores:
                self._do_chore()
            self.asleep = True
            if not queue and self._close_at is None:
                with contextlib.suppress(Empty):
                    self._signal.get(timeout=self._rest_s() if self._chores else None)
            self.asleep = False
        rows: list[Row] = []
        size_bytes = 0
        while queue and len(rows) < self.most_rows and size_bytes < _BATCH_BYTES:
            row = queue.popleft()
            if isinstance(row, Segment):
                if rows:
                    queue.appendleft(row)
                else:
                    self._segment = row
                break
            rows.append(row)
            if type(row) is CallEnded:
                size_bytes += len(row.wire)
        return rows

    def _open(self) -> None:
        self._store.open()
        connection, self._release = self._store.driver_connection()
        self._statements = (
            SqliteStatements(connection) if self._store.is_sqlite else PostgresStatements(connection)
        )

    def _drop(self) -> None:
        self._statements = None
        release, self._release = self._release, None
        try:
            if release is not None:
                release()
        except Exception as exc:  # expected: it is dropped since it is broken
            log.debug("journal_close_failed", reason=str(exc))

    def _write(self, rows: list[Row]) -> frozenset[int]:
        """Commit the rows; returns the rows given up, by their number since the start."""
        assert self._statements is not None
        self._look()
        wanted = rows if not self.unknown else [row for row in rows if self._is_known(row)]
        try:
            if wanted:
                self._statements.write(encode(wanted))
            refused: list[Row] = []
        except Exception as exc:
            if not is_about_rows(exc):
                raise
            refused = [row for row in wanted if not self._write_one(row)]
        self.committed += len(wanted) - len(refused)
        self._note(wanted)
        if len(wanted) == len(rows) and not refused:
            return _NONE
        kept = {id(row) for row in wanted} - {id(row) for row in refused}
        return frozenset(self._settled + at for at, row in enumerate(rows, 1) if id(row) not in kept)

    def _write_one(self, row: Row) -> bool:
        """Commit one row; False if the database refused it."""
        assert self._statements is not None
        written = write_row(self._statements, encode([row]), self._store.location)
        if not written and isinstance(row, SessionOpened):
            self.unknown.add(row.id)
        return written

    def _write_segment(self, segment: Segment) -> frozenset[int]:
        """Write its rows to the tables; returns a negative number, of no entry, for each row given up."""
        assert self._statements is not None
        self._look()
        whole = segment.batch()
        batch, lost = without(whole, self.unknown) if self.unknown else (whole, 0)
        refused = write_all(self._statements, batch, self._store.location)
        self.unknown.difference_update(whole.ends)
        self.unknown.update(id for row in refused for id in row.sessions)
        self._live.update(batch.sessions)
        self._live.difference_update(batch.ends)
        self._give_back(segment)
        return frozenset(range(-lost - len(refused), 0))

    def _look(self) -> None:
        if time.monotonic() > self._look_at:
            self._look_at = time.monotonic() + _LOOK_S
            self._store.look()

    def _leave(self) -> None:
        """Leave unwritten segments on disk: the next one that opens the journal replays them."""
        left = [each for each in (self._segment, *self.queue) if isinstance(each, Segment)]
        for segment in left:
            segment.close()
        if left:
            log.warning("journal_wal_left", rows=sum(segment.rows for segment in left))

    def _is_known(self, row: Row) -> bool:
        session = _session(row)
        if session not in self.unknown:
            return True
        if isinstance(row, SessionEnded):
            self.unknown.discard(session)
        return False

    def _note(self, rows: list[Row]) -> None:
        for row in rows:
            if type(row) is SessionOpened:
                self._live.add(row.id)
            elif type(row) is SessionEnded:
                self._live.discard(row.id)

    def _rest_s(self) -> float:
        return max(0.001, self._chore_at - time.monotonic())

    def _do_chore(self) -> None:
        """Run the next chore, after a pause since the last one: rows have priority."""
        began = time.monotonic()
        if began < self._chore_at:
            return
        chore, done = self._chores.popleft()
        try:
            with self._store.writing() as connection:
                chore(connection)
            well = True
        except Exception as exc:
            found = journal_down(exc, self._store.location)
            log.warning("journal_chore_failed", reason=found.reason, hint=found.hint)
            well = False
        now = time.monotonic()
        self._chore_at = now + _RESTS * (now - began)
        done(well)

    # trouble

    def _works(self, lost: frozenset[int]) -> None:
        if self.trouble is not None:
            seconds = round(time.time() - self.trouble_since, 1)
            log.info("journal_recovered", location=self._store.location, seconds=seconds)
            self.trouble = None
        self._report(self._settled, lost)

    def _failed(self, exc: Exception, attempts: int) -> None:
        """Report an error once, and wait from the second attempt on: a connection may have been stale."""
        found = journal_down(exc, self._store.location)
        path = self._store.options.path
        if found.kind in ("damaged", "lost"):
            self._store.close()
        if found.kind == "damaged" and path is not None:
            found = self._begin_anew(path, found)
        elif found.kind == "lost":
            self._forget()
        elif attempts == 1:
            return
        if self.trouble is None:
            self.trouble_since = time.time()
            mistake = exc if found.kind == "mistake" else None
            log.error("journal_trouble", reason=found.reason, hint=found.hint, exc_info=mistake)
        self.trouble = found
        self._report(self._settled, _NONE)
        if self._closing.wait(self._retry_s):
            time.sleep(_CLOSING_RETRY_S)

    def _begin_anew(self, path: Path, found: JournalDown) -> JournalDown:
        try:
            kept = quarantine(path)
        except OSError as exc:
            reason = f"{found.reason} and cannot be moved away: {exc.strerror}"
            return JournalDown(reason, "move it away by hand")
        self._forget()
        return JournalDown(found.reason, f"it is kept as {kept}, and a new one is begun")

    def _forget(self) -> None:
        """Mark the live sessions as unknown: a new journal does not have them."""
        self.unknown |= self._live
        self._live.clear()

    def _given_up(self, rows: list[Row]) -> bool:
        """True once the thread is closed, and has nothing to write or has tried long enough."""
        if self._close_at is None:
            return False
        waits = bool(rows or self.queue or self._segment)
        if waits and time.monotonic() - self._close_at < self._close_s:
            return False
        if lost := len(rows) + sum(not isinstance(each, Segment) for each in self.queue):
            log.error("journal_rows_lost", rows=lost)
        return True


def _session(row: Row) -> int:
    if isinstance(row, RolloutLogged):
        return row.rollout  # which is never unknown
    return row.session if isinstance(row, Prompted | CallStarted | CallEnded | SandboxUsed) else row.id
