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

from orsay_protocol.redact import NOTHING, Redactor, redactor

from ..auth import short_name
from ..journal.ids import new_id
from ..journal.read.intervals import finite
from ..journal.records import CallEnded, CallStarted, Prompted, Row, SessionEnded, SessionOpened
from ..runtimes.base import OpenSession
from ..runtimes.outcome import Outcome
from .labels import parse_labels

if TYPE_CHECKING:
    from ..journal.write.writer import Writer

__all__ = ["Record", "Recorder", "digest_of", "task_name"]

_LONGEST_CLIENT = 200
Done = Callable[[bool], None]


def task_name(split: str | None, index: int | None, spec: object, hide: Redactor = NOTHING) -> str:
    """Equal for equal tasks: ``train:17``, or ``spec:`` and a hash of the spec's JSON.

    The hash is of a spec without secrets: short ones could be guessed from it.
    """
    if spec is None:
        return hide.plain(f"{split}:{index}")
    text = json.dumps(hide.value(spec) if hide else spec, sort_keys=True, separators=(",", ":"))
    return f"spec:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def digest_of(shown: bytes) -> str:
    """What tells an answer that was shown from another one."""
    return hashlib.blake2b(shown, digest_size=16).hexdigest()


class Recorder:
    """Makes a Record of each session. ``server`` names this server, as it did before a restart."""

    def __init__(self, writer: Writer, server: str) -> None:
        self.writer = writer
        self.server = server

    def again(self, id: int) -> Record:
        """Of a session that goes on after a restart."""
        return Record(self.writer, id, replayable=True)

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
        hash_seed: int | None,
    ) -> Record:
        """Of a session that is about to be opened; nothing is written before ``Record.opened``.

        ``task`` is what ``task_name`` says of it.
        """
        now = time.time()
        labels = parse_labels(request.run)
        run = labels.run or _unlabelled(owner, now)
        hide = redactor(request.secrets.values()) if any(request.secrets.values()) else None
        record = Record(self.writer, new_id(), hide, replayable=replayable)
        record.opening = SessionOpened(
            id=record.id,
            sid=sid,
            server=self.server,
            environment=environment,
            split=request.split,
            task_index=request.index,
            task=task,
            owner=owner,
            client=(client if hide is None else hide.plain(client))[:_LONGEST_CLIENT],
            run=run,
            labelled=labels.run is not None,
            step=labels.step,
            rollout=labels.rollout,
            labels=labels.other,
            trace=request.trace or "",
            digest=digest.hex() if hide is None else "",  # short secrets could be guessed from it
            replayable=replayable,
            hash_seed=hash_seed,
            started_at=now,
            request=request.model_dump_json(exclude={"secrets"}).encode(),
            hide=hide,
        )
        return record


def _unlabelled(owner: str, now: float) -> str:
    """Where sessions go that no client named: by key and day."""
    return f"{short_name(owner) or 'anyone'} {datetime.fromtimestamp(now, UTC):%Y-%m-%d}"


class Record:
    """What the journal hears of one session. Times are of ``time.time``, durations in seconds.

    The futures tell whether a row is committed; False: nobody should wait for it any longer.
    """

    __slots__ = (
        "_shown",
        "_writer",
        "clock",
        "faults",
        "first_fault",
        "hide",
        "id",
        "number",
        "opening",
        "replayable",
        "reward_sum",
        "setup_s",
    )

    def __init__(
        self, writer: Writer, id: int, hide: Redactor | None = None, *, replayable: bool = False
    ) -> None:
        self._writer = writer
        self.id = id
        self.hide = hide
        self.replayable = replayable and hide is None  # so that the session may go on
        self.clock = 0  # counts what ended: results, and answers to who asked for the prompt and its like
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

    def shown(self, kind: str, data: bytes, after: int | None) -> asyncio.Future[bool] | None:
        """The client is about to see the prompt, messages or tools; only the first of a kind is kept.

        ``after`` is what ``clock`` said when they were asked for, -1 before the end of setup; None where no
        code of the environment was asked. The future is for sessions that may go on: they need all of this.
        """
        first = kind not in self._shown
        if first:
            self._shown = (*self._shown, kind)
        if self.replayable and after is not None:
            self.clock += 1
            kept, digest = (data, None) if first else (b"", digest_of(data))
            return self._write(Prompted(self.id, kind, kept, self.hide, self.clock, after, digest))
        if first:
            self._writer.add(Prompted(self.id, kind, data, self.hide))
        return None

    def not_shown(self, kind: str, fault: str, after: int) -> None:
        """To be asked for the prompt, messages or tools ended in a fault."""
        if self.replayable:
            self.clock += 1
            self._writer.add(Prompted(self.id, kind, b"", self.hide, self.clock, after, None, fault))

    def started(
        self, kind: str, task_id: str, key: str | None, name: str, body: bytes, age_s: float, after: int
    ) -> tuple[int, asyncio.Future[bool]]:
        """A call runs on, and its client is about to read its task id; the call's id here comes first."""
        call = new_id()
        began = time.time() - age_s
        row = CallStarted(call, self.id, kind, task_id, key, name, body, began, after, self.hide)
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
        after: int,
        done: Done,
    ) -> None:
        """A call has its result. ``call`` is what ``started`` returned, or 0; ``after`` is what ``clock``
        said when it began.
        """
        self.number += 1
        self.clock += 1
        fault = outcome.fault
        if fault is not None:
            self.faults += 1
            self.first_fault = self.first_fault or fault.fault
        elif outcome.reward is not None:
            self.reward_sum = (self.reward_sum or 0.0) + outcome.reward
        self._writer.add(
            CallEnded(
                id=call or new_id(),
                session=self.id,
                number=self.number,
                kind=kind,
                task_id=task_id,
                key=key,
                name=name,
                body=body,
                wire=outcome.discarded or outcome.wire,
                reward=outcome.reward,
                finished=outcome.finished,
                discarded=bool(outcome.discarded),
                fault=None if fault is None else fault.fault,
                fault_id=fault_id,
                message=None if fault is None else fault.message,
                started_at=time.time() - total_s,
                queue_s=outcome.queue_s,
                run_s=outcome.run_s,
                stream_s=stream_s,
                total_s=total_s,
                after=after,
                hide=self.hide,
            ),
            done,
        )

    def resume(
        self,
        shown: tuple[str, ...],
        *,
        number: int,
        clock: int,
        faults: Sequence[str],
        reward_sum: float | None,
    ) -> None:
        """The session goes on after a restart: this was written before."""
        self._shown = shown
        self.number = number
        self.clock = clock
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
                finite(self.reward_sum),
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
