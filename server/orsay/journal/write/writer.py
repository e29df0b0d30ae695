"""Journal writer on the event loop: takes rows, and calls back when they are durable.

Small rows of a SQLite journal are appended to its write-ahead log at once (see ``wal``), and go into the
tables later. The writer thread (see ``thread``) commits all others. While it cannot, calls wait for a short
time only, rows wait in bounded memory, and rows beyond that are given up and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from sqlalchemy import Connection

from ...errors import JournalDown
from ...logs import get_logger
from ..database import Store
from ..options import JournalOptions
from ..records import CallEnded, Prompted, Row, SessionEnded, SessionOpened
from .retention import (
    PAGES_AT_ONCE,
    free_pages,
    give_back,
    remove,
    remove_rollouts,
    rollouts_to_remove,
    steps,
    to_remove,
)
from .run_delay import RunDelay
from .thread import Chore, WriterThread
from .wal import AGE_S, IS_HERE, MOST_ROWS, Segment, WriteAheadLog

__all__ = ["JournalHealth", "Writer", "WriterLimits"]

T = TypeVar("T")
OnDurable = Callable[[bool], None]
"""Callback of a row, called once: with True when it is durable, with False when it is given up."""

_READERS = 8
_HANGS_S = 10.0
_ROW_BYTES = 1_000  # estimate for a row without its texts
_SMALL_BYTES = 8_192  # larger rows are not packed on the event loop
_MOST_SINGLES = 16  # turns of the loop with one row each; then a row that comes alone is committed at once
_RUSH_S = 0.0002  # longest time between two rows of one turn of the loop
_SLOW_S = 0.05  # a disk slower to append suspends the log: the event loop must not wait for it
_SLOW_FOR_S = 10.0

log = get_logger("journal")


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """Bounds on waiting calls, and on rows in memory, while rows cannot be written."""

    wait_limit_s: float = 1.0
    """Longest wait of a call while the journal fails."""
    stall_s: float = 5.0
    """Longest wait of a call while a write does not return."""
    rows: int = 200_000
    size_bytes: int = 256 * 1024 * 1024
    retry_s: float = 1.0
    retention_s: float = 60.0
    """Interval between two checks of the bounds of retention."""
    close_s: float = 5.0
    tick_s: float = 0.25


@dataclass(frozen=True, slots=True)
class JournalHealth:
    """State of the journal. ``lag_s`` is the age of the oldest row that is not committed yet."""

    state: Literal["ok", "trouble", "off"]
    reason: str = ""
    hint: str = ""
    since: float | None = None
    """Begin of the trouble, in seconds since 1970."""
    waiting: int = 0
    lag_s: float = 0.0
    committed: int = 0
    lost: int = 0
    """Rows given up since the start."""


class Writer:
    """Writer of one journal. Its methods are for the event loop's thread."""

    def __init__(self, options: JournalOptions, limits: WriterLimits | None = None) -> None:
        self.options = options
        self._limits = limits = limits or WriterLimits()
        self.store = Store(options)
        self._loop: asyncio.AbstractEventLoop | None = None
        path = options.path if options.durability == "process" and IS_HERE else None
        self._wal = None if path is None else WriteAheadLog(path)
        self._thread = WriterThread(
            self.store,
            self._report,
            give_back=_none if self._wal is None else self._wal.give_back,
            retry_s=limits.retry_s,
            close_s=limits.close_s,
        )
        self._queue = self._thread.queue
        self._fresh: list[tuple[Row, OnDurable | None]] = []  # about to be appended to the log
        self._quick = False  # True while small rows go to the log
        self._singles = 0  # turns of the loop, one after the other, with a single row
        self._rush_until = 0.0
        self._run_delay: RunDelay | None = None  # of the loop's thread
        self._committed = 0
        self._handing_over: asyncio.TimerHandle | None = None
        self._added = 0  # rows and segments handed to the writer thread
        self._settled = 0  # of those: committed or given up
        self._lost = 0
        self._waiting: deque[tuple[int, OnDurable]] = deque()
        self._marks: deque[tuple[int, float]] = deque()  # rows added by then, and a time
        self._stuck = False  # True while callers do not wait for rows
        self._stalled_at: float | None = None
        self._held_bytes = 0
        self._ticking: asyncio.TimerHandle | None = None
        self._tried = asyncio.Event()
        self._retaining: asyncio.Task[None] | None = None
        self._readers = ThreadPoolExecutor(_READERS, "orsay-journal-read")
        self._closed = False

    def start(self) -> None:
        """Start the writer thread, which opens the journal and creates or migrates its tables."""
        self._loop = asyncio.get_running_loop()
        self._run_delay = RunDelay()
        self._thread.start()
        self._tick()
        self._retaining = self._loop.create_task(self._retain())

    def add(self, row: Row, on_durable: OnDurable | None = None) -> None:
        """Write the row. ``on_durable`` is called once, on the event loop, with True when it is committed.

        That may be before this returns: while rows keep coming alone they are committed at once, else those
        of one turn of the loop together (group commit). With False the wait is given up; the row may still be
        written later.
        """
        size = _ROW_BYTES + len(row.body) + len(row.wire) if type(row) is CallEnded else _size(row)
        if self._stuck or self._closed:
            self._add_stuck(row, on_durable, size)
        elif self._quick and size < _SMALL_BYTES:
            self._fresh.append((row, on_durable))
            if self._singles >= _MOST_SINGLES:
                now = time.monotonic()
                alone, self._rush_until = now > self._rush_until, now + _RUSH_S
                if alone:
                    self._commit()
                    return
                self._singles = 0
            if len(self._fresh) == 1 and self._loop is not None:
                self._loop.call_soon(self._commit_turn)
        else:
            self._add_slow(row, on_durable)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` on a thread, with a connection that sees all committed rows. Raises JournalDown."""
        if self._closed:
            raise JournalDown("the journal is closed")
        await self._tried.wait()
        assert self._loop is not None
        await self._tables_follow()
        return await self._loop.run_in_executor(self._readers, self._read, work)

    async def change(self, chore: Chore) -> None:
        """Run a change of the tables between two batches of rows. Raises JournalDown."""
        await self._done(chore)

    async def close(self) -> None:
        """Commit pending rows, and end the thread; a failing journal gives them up after ``close_s``."""
        if self._closed or self._loop is None:
            return
        self._closed = True
        if self._retaining is not None:
            self._retaining.cancel()
            await asyncio.gather(self._retaining, return_exceptions=True)
        self._hand_over()
        ended = asyncio.Event()
        self._thread.close(lambda: self._call_soon(ended.set))
        try:
            await asyncio.wait_for(ended.wait(), self._limits.close_s + _HANGS_S)
        except TimeoutError:  # it hangs in a call; it is a daemon
            log.error("journal_abandoned", reason="a write does not return", rows=self._uncommitted)
        if self._ticking is not None:
            self._ticking.cancel()
        self._lost += self._uncommitted
        self._settled = self._added
        self._release()
        if self._wal is not None:
            self._wal.close()
        if self._run_delay is not None:
            self._run_delay.close()
        await self._loop.run_in_executor(self._readers, self.store.close)
        self._readers.shutdown(wait=False)

    @property
    def health(self) -> JournalHealth:
        """Current health."""
        waiting = self._uncommitted
        found = self._thread.trouble
        since = self._thread.trouble_since
        if found is None and self._stalled_at is not None:
            found = JournalDown(
                f"the journal {self.store.location} takes too long to write", "check its disk or server"
            )
            since = self._stalled_at
        return JournalHealth(
            state="off" if self._closed else "ok" if found is None else "trouble",
            reason="" if found is None else found.reason,
            hint="" if found is None else found.hint,
            since=None if found is None else since,
            waiting=waiting,
            lag_s=time.monotonic() - self._marks[0][1] if self._marks and waiting else 0.0,
            committed=self._committed + self._thread.committed,
            lost=self._lost,
        )

    def _read(self, work: Callable[[Connection], T]) -> T:
        if self._thread.trouble is not None and not self.store.is_open:
            raise JournalDown(self._thread.trouble.reason, self._thread.trouble.hint)
        with self.store.reading() as connection:
            return work(connection)

    # rows that are committed to the write-ahead log

    def _commit_turn(self) -> None:
        """Commit the rows of this turn of the loop."""
        self._singles = self._singles + 1 if len(self._fresh) == 1 else 0
        self._commit()

    def _commit(self) -> None:
        """Commit new rows to the log; the writer thread takes those that it cannot."""
        fresh, self._fresh = self._fresh, []
        if not fresh:
            return
        wal, thread, loop, run_delay = self._wal, self._thread, self._loop, self._run_delay
        assert wal is not None and loop is not None and run_delay is not None
        delayed_s, began = run_delay.total_s(), time.monotonic()
        try:
            rows = wal.append(fresh) if thread.trouble is None and not thread.unknown else 0
        except Exception as exc:  # the writer thread meets it too, and reports it
            log.debug("journal_wal_failed", reason=str(exc))
            rows = 0
        if not rows:
            for row, done in fresh:
                self._add_slow(row, done)
            return
        took_s = time.monotonic() - began
        # On a busy machine a write takes long without a slow disk, and the log is what costs least there.
        if took_s > _SLOW_S and took_s - (run_delay.total_s() - delayed_s) > _SLOW_S:
            self._quick = False
            loop.call_later(_SLOW_FOR_S, self._be_quick)
        self._committed += len(fresh)
        _call_each((done, True) for _, done in fresh if done is not None)
        if rows >= MOST_ROWS:
            self._hand_over()
        elif self._handing_over is None:
            self._handing_over = loop.call_later(AGE_S, self._hand_over)

    def _be_quick(self) -> None:
        self._quick = self._wal is not None

    def _hand_over(self) -> None:
        """Hand the rows so far to the writer thread, which puts them into the tables."""
        self._commit()
        if self._handing_over is not None:
            self._handing_over.cancel()
            self._handing_over = None
        segment = None if self._wal is None else self._wal.hand_over()
        if segment is not None:
            self._put(segment)

    async def _tables_follow(self) -> None:
        """Wait until the tables have all committed rows, unless the journal fails."""
        if self._wal is None or self._stuck or not (self._wal.rows or self._wal.on_their_way):
            return
        assert self._loop is not None
        self._hand_over()
        followed = self._loop.create_future()
        self._waiting.append((self._added, lambda well: _resolve(followed, well)))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(followed, self._limits.wait_limit_s)

    # rows and segments for the writer thread

    def _add_slow(self, row: Row, on_durable: OnDurable | None) -> None:
        if type(row) is SessionEnded:  # it must not precede the row that opened the session
            self._hand_over()
        self._put(row)
        if on_durable is not None:
            self._waiting.append((self._added, on_durable))

    def _put(self, entry: Row | Segment) -> None:
        self._added += 1
        self._queue.append(entry)
        if self._thread.asleep:
            self._thread.wake()

    @property
    def _uncommitted(self) -> int:
        """Rows that wait for the writer thread."""
        segments = 0 if self._wal is None else self._wal.on_their_way
        return max(0, self._added - self._settled - segments)

    # retention

    async def _retain(self) -> None:
        """Remove what is beyond the bounds of retention at intervals, in steps between two batches."""
        while True:
            await asyncio.sleep(self._limits.retention_s)
            try:
                while ids := await self.read(self._to_remove):
                    for part in steps(ids):
                        await self._done(partial(remove, ids=part))
                    log.info("journal_pruned", sessions=len(ids))
                while ids := await self.read(self._rollouts_to_remove):
                    for part in steps(ids):
                        await self._done(partial(remove_rollouts, ids=part))
                    log.info("journal_pruned", rollouts=len(ids))
                for _ in range(await self.read(free_pages) // PAGES_AT_ONCE):
                    await self._done(give_back)
            except JournalDown as exc:
                log.debug("journal_not_pruned", reason=exc.reason)

    def _to_remove(self, connection: Connection) -> list[int]:
        return to_remove(connection, self.options, time.time())

    def _rollouts_to_remove(self, connection: Connection) -> list[int]:
        return rollouts_to_remove(connection, self.options, time.time())

    async def _done(self, chore: Chore) -> None:
        """Run the chore in the writer thread. Raises JournalDown if it failed."""
        assert self._loop is not None
        done: asyncio.Future[bool] = self._loop.create_future()
        self._thread.do(chore, lambda well: self._call_soon(_resolve, done, well))
        if not await done:
            raise JournalDown("a change of the tables failed: see journal_chore_failed in the log")

    # reports of the writer thread

    def _report(self, upto: int, lost: frozenset[int]) -> None:
        """Report of the writer thread: the first ``upto`` rows are settled, and ``lost`` of them were given
        up.
        """
        self._call_soon(self._settle, upto, lost)

    def _call_soon(self, what: Callable[..., object], *args: object) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *args)

    def _settle(self, upto: int, lost: frozenset[int]) -> None:
        if not self._tried.is_set():
            self._tried.set()
            self._be_quick()
        self._settled = max(self._settled, upto)
        self._lost += len(lost)
        self._committed -= sum(number < 0 for number in lost)
        _call_each((done, number not in lost) for number, done in self._take_settled())
        if self._stuck and self._thread.trouble is None and self._added - upto <= self._thread.most_rows:
            self._stuck = False
            self._held_bytes = 0
        if self._stalled_at is not None and not self._stuck:
            log.info("journal_recovered", seconds=round(time.time() - self._stalled_at, 1), lost=self._lost)
            self._stalled_at = None

    # failures

    def _tick(self) -> None:
        assert self._loop is not None
        now = time.monotonic()
        marks = self._marks
        while marks and marks[0][0] <= self._settled:
            marks.popleft()
        if self._added > (marks[-1][0] if marks else self._settled):
            marks.append((self._added, now))
        lag = now - marks[0][1] if marks else 0.0
        broken = self._thread.trouble is not None
        if not self._stuck and lag >= (self._limits.wait_limit_s if broken else self._limits.stall_s):
            self._stuck = True
            self._hand_over()
            if not broken:
                self._stalled_at = time.time()
                found = self.health
                log.error("journal_trouble", reason=found.reason, hint=found.hint)
            self._release()
        self._ticking = self._loop.call_later(self._limits.tick_s, self._tick)

    def _take_settled(self) -> Iterator[tuple[int, OnDurable]]:
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._settled:
            yield waiting.popleft()

    def _release(self) -> None:
        """End all waits for durable rows; the rows stay in the queue."""
        waiting, self._waiting = self._waiting, deque()
        _call_each((done, False) for _, done in waiting)

    def _add_stuck(self, row: Row, on_durable: OnDurable | None, size: int) -> None:
        assert self._loop is not None
        if on_durable is not None:
            self._loop.call_soon(on_durable, False)
        waiting = self._uncommitted
        full = waiting >= self._limits.rows or self._held_bytes + size > self._limits.size_bytes
        if self._closed or (full and not isinstance(row, SessionEnded)):  # else the session would seem alive
            self._lost += 1
            if isinstance(row, SessionOpened):
                self._thread.unknown.add(row.id)  # its result is given up too
            return
        self._held_bytes += size
        self._put(row)


def _none(_segment: Segment) -> None:
    """Ignore the segment: without a write-ahead log there are none."""


def _call_each(waiting: Iterator[tuple[OnDurable, bool]]) -> None:
    """Call each with whether its row is durable. One that raises is logged, and the others are called."""
    while True:
        try:
            for done, durable in waiting:
                done(durable)
            return
        except Exception:
            log.exception("journal_callback_failed")


def _resolve(future: asyncio.Future[bool], well: bool) -> None:
    if not future.done():
        future.set_result(well)


def _size(row: Row) -> int:
    if isinstance(row, SessionOpened):
        return _ROW_BYTES + 2 * len(row.request)  # its other texts are short, or parts of the request
    if isinstance(row, SessionEnded):
        return _ROW_BYTES + len(row.end_reason)
    if isinstance(row, Prompted):
        return _ROW_BYTES + len(row.data)
    size = _ROW_BYTES
    for part in row:
        if type(part) is str or type(part) is bytes:
            size += len(part)
    return size
