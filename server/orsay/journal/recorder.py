"""What sessions tell the journal: one ``Recorder`` a server, one ``Record`` a session."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from ..labels import parse_labels
from ..outcome import Outcome
from ..runtimes.base import OpenSession
from .ids import new_id
from .rows import CallEnded, CallStarted, Prompted, Row, SessionEnded, SessionOpened

if TYPE_CHECKING:
    from .writer import Writer

__all__ = ["Record", "Recorder", "task_name"]

_LONGEST_CLIENT = 200
Done = Callable[[bool], None]


def task_name(split: str | None, index: int | None, spec: object) -> str:
    """Equal for equal tasks: ``train:17``, or ``spec:`` and a hash of the spec's JSON."""
    if spec is None:
        return f"{split}:{index}"
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return f"spec:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


class Recorder:
    """Makes a Record of each session. ``server`` names this server, as it did before a restart."""

    def __init__(self, writer: Writer, server: str) -> None:
        self.writer = writer
        self.server = server

    def again(self, id: int) -> Record:
        """Of a session that goes on after a restart."""
        return Record(self.writer, id)

    def begin(
        self,
        sid: str,
        owner: str,
        environment: str,
        request: OpenSession,
        digest: bytes,
        *,
        task: str,
        client: str,
        replayable: bool,
    ) -> Record:
        """Of a session that is about to be opened; nothing is written before ``Record.opened``.

        ``task`` is what ``task_name`` says of it.
        """
        now = time.time()
        labels = parse_labels(request.run)
        run = labels.run or _unlabelled(owner, now)
        hide = tuple(value for value in request.secrets.values() if value)
        record = Record(self.writer, new_id(), hide)
        record.opening = SessionOpened(
            id=record.id,
            sid=sid,
            server=self.server,
            environment=environment,
            split=request.split,
            task_index=request.index,
            task=task,
            owner=owner,
            client=client[:_LONGEST_CLIENT],
            run=run,
            labelled=labels.run is not None,
            step=labels.step,
            rollout=labels.rollout,
            labels=labels.other,
            trace=request.trace or "",
            digest=digest.hex(),
            replayable=replayable,
            started_at=now,
            request=request.model_dump_json(exclude={"secrets"}).encode(),
            hide=hide,
        )
        return record


def _unlabelled(owner: str, now: float) -> str:
    """Where sessions go that no client named: by key and day."""
    return f"{owner or 'anyone'} {datetime.fromtimestamp(now, UTC):%Y-%m-%d}"


class Record:
    """What the journal hears of one session. Times are of ``time.time``, durations in seconds.

    The futures tell whether a row is committed; False: nobody should wait for it any longer.
    """

    __slots__ = (
        "_shown",
        "_writer",
        "faults",
        "first_fault",
        "hide",
        "id",
        "number",
        "opening",
        "reward_sum",
        "setup_s",
    )

    def __init__(self, writer: Writer, id: int, hide: tuple[str, ...] = ()) -> None:
        self._writer = writer
        self.id = id
        self.hide = hide
        self.opening: SessionOpened | None = None
        self.number = 0  # of the last result
        self.faults = 0
        self.first_fault: str | None = None
        self.reward_sum: float | None = None
        self.setup_s: float | None = None
        self._shown: tuple[str, ...] = ()

    def opened(self) -> asyncio.Future[bool]:
        """The session is there, or failed in a way that belongs to its environment."""
        assert self.opening is not None
        row, self.opening = self.opening, None
        return self._write(row)

    def shown(self, kind: str, data: bytes) -> None:
        """The client was shown the prompt, messages or tools; only the first of a kind is kept."""
        if kind not in self._shown:
            self._shown = (*self._shown, kind)
            self._writer.add(Prompted(self.id, kind, data, self.hide))

    def started(
        self, kind: str, task_id: str, key: str | None, name: str, body: bytes, age_s: float
    ) -> tuple[int, asyncio.Future[bool]]:
        """A call runs on, and its client is about to read its task id; the call's id here comes first."""
        call = new_id()
        began = time.time() - age_s
        row = CallStarted(call, self.id, kind, task_id, key, name, body, began, self.hide)
        return call, self._write(row)

    def finished(
        self,
        call: int,
        kind: str,
        task_id: str,
        key: str | None,
        name: str,
        body: bytes,
        outcome: Outcome,
        fault_id: str | None,
        stream_s: float | None,
        total_s: float,
        done: Done,
    ) -> None:
        """A call has its result. ``call`` is what ``started`` returned, or 0."""
        self.number += 1
        fault = outcome.fault
        if fault is not None:
            self.faults += 1
            self.first_fault = self.first_fault or fault.fault
        elif outcome.reward is not None:
            self.reward_sum = (self.reward_sum or 0.0) + outcome.reward
        self._writer.add(
            CallEnded(
                call or new_id(),
                self.id,
                self.number,
                kind,
                task_id,
                key,
                name,
                body,
                outcome.discarded or outcome.wire,
                outcome.reward,
                outcome.finished,
                bool(outcome.discarded),
                None if fault is None else fault.fault,
                fault_id,
                None if fault is None else fault.message,
                time.time() - total_s,
                outcome.queue_s,
                outcome.run_s,
                stream_s,
                total_s,
                self.hide,
            ),
            done,
        )

    def resume(
        self, shown: tuple[str, ...], *, number: int, faults: Sequence[str], reward_sum: float | None
    ) -> None:
        """The session goes on after a restart: this was written before."""
        self._shown = shown
        self.number = number
        self.faults = len(faults)
        self.first_fault = faults[0] if faults else None
        self.reward_sum = reward_sum

    def ended(
        self,
        reason: str,
        fault: str | None,
        calls: int,
        reward: float | None,
        *,
        finished: bool,
    ) -> asyncio.Future[bool] | None:
        """The session is over; ``fault`` is the class when something failed that ended it.

        None when it was refused: there never was one.
        """
        if self.opening is not None:
            return None
        return self._write(
            SessionEnded(
                self.id,
                time.time(),
                reason,
                fault or self.first_fault,
                calls,
                self.faults,
                reward,
                self.reward_sum,
                finished,
                self.setup_s,
                self.hide,
            )
        )

    def _write(self, row: Row) -> asyncio.Future[bool]:
        written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._writer.add(row, partial(_tell, written))
        return written


def _tell(written: asyncio.Future[bool], committed: bool) -> None:
    if not written.done():
        written.set_result(committed)
