"""Journal rows of sessions: one ``Recorder`` for a server, one ``Record`` for each session."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeAlias

from orsay_protocol.redact import NOTHING, Redactor

from ..auth import short_name
from ..errors import Faulted, Refused
from ..journal.ids import new_id
from ..journal.read.intervals import finite
from ..journal.records import CallEnded, CallStarted, Prompted, Row, SessionEnded, SessionOpened
from ..runtimes.base import OpenSession
from ..runtimes.outcome import Outcome
from ..sandboxes.events import CommandEnded, FileUsed, SandboxEvent
from .call import Call
from .hidden_keys import hiding_keys
from .labels import parse_labels
from .sandbox_rows import sandbox_row

if TYPE_CHECKING:
    from ..journal.write.writer import Writer

__all__ = ["Record", "Recorder", "digest_of", "task_name"]

_LONGEST_CLIENT = 200
_MOST_SANDBOX_ROWS = 10_000  # of a session: a loop in a tool must not fill the journal
OnDurable: TypeAlias = Callable[[bool], None]
"""Called once: True when the row is committed, False when the wait for it is given up."""


def task_name(split: str | None, index: int | None, spec: object, hide: Redactor = NOTHING) -> str:
    """Name that is equal for equal tasks: ``train:17``, or ``spec:`` and a hash of the spec's JSON.

    The spec is redacted before it is hashed, since short secrets could be guessed from the hash.
    """
    if spec is None:
        return hide.plain(f"{split}:{index}")
    text = json.dumps(hide.value(spec) if hide else spec, sort_keys=True, separators=(",", ":"))
    return f"spec:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


def digest_of(answer: bytes) -> str:
    """Fingerprint of the answer to a request for the prompt, the messages or the tools."""
    return hashlib.blake2b(answer, digest_size=16).hexdigest()


class Recorder:
    """Maker of records. ``server`` is the server's name, the same after a restart."""

    def __init__(self, writer: Writer, server: str) -> None:
        self.writer = writer
        self.server = server

    def resume(self, id: int, *, used_sandbox: bool = False) -> Record:
        """Record of a session that is rebuilt."""
        record = Record(self.writer, id, replayable=True)
        record.replaying = True
        record.used_sandbox = used_sandbox
        return record

    def begin(
        self,
        sid: str,
        owner: str,
        environment: str,
        request: OpenSession,
        digest: bytes,
        hide: Redactor,
        *,
        task: str,
        client: str,
        replayable: bool,
        hash_seed: int | None,
    ) -> Record:
        """Record of a new session; nothing is written before ``Record.session_opened``.

        ``task`` is its ``task_name``.
        """
        now = time.time()
        labels = parse_labels(request.run)
        secrets = None if hide is NOTHING else hide  # secrets too short to hide count too: see digest
        run = labels.run or _unlabelled(owner, now)
        opening = SessionOpened(
            id=new_id(),
            sid=sid,
            server=self.server,
            environment=environment,
            split=request.split,
            task_index=request.index,
            task=task,
            owner=owner,
            client=hide.plain(client)[:_LONGEST_CLIENT],
            run=run,
            labelled=labels.run is not None,
            step=labels.step,
            rollout=labels.rollout,
            labels=labels.other,
            trace=request.trace or "",
            digest=digest.hex() if secrets is None else "",  # short secrets could be guessed from it
            replayable=replayable,
            hash_seed=hash_seed,
            started_at=now,
            request=request.model_dump_json(exclude={"secrets"}).encode(),
            hide=secrets,
        )
        return Record(self.writer, opening.id, secrets, replayable=replayable, opening=opening)


def _unlabelled(owner: str, now: float) -> str:
    """Name of the run of sessions without a label: key and day."""
    return f"{short_name(owner) or 'anyone'} {_day(int(now // 86_400))}"


@lru_cache(2)
def _day(number: int) -> str:
    """Date of a day since 1970, in UTC."""
    return f"{datetime.fromtimestamp(number * 86_400, UTC):%Y-%m-%d}"


class Record:
    """Rows of one session. Times are of ``time.time``, durations in seconds.

    ``clock`` is the logical clock of the session: the number of results, and of answers to requests for
    prompt, messages and tools. Futures are done when the row is durable; False: the wait is given up.
    """

    __slots__ = (
        "_faults",
        "_first_fault",
        "_opening",
        "_prompts",
        "_reward_sum",
        "_sandbox_rows",
        "_setup_s",
        "_unwritten",
        "_writer",
        "clock",
        "hide",
        "id",
        "number",
        "replayable",
        "replaying",
        "used_sandbox",
    )

    def __init__(
        self,
        writer: Writer,
        id: int,
        hide: Redactor | None = None,
        *,
        replayable: bool = False,
        opening: SessionOpened | None = None,
    ) -> None:
        self._writer = writer
        self.id = id
        self.hide = hide
        self.replayable = replayable and hide is None  # so that the session may be rebuilt
        self.clock = 0
        self.number = 0  # of the last result
        self._opening = opening
        self._faults = 0
        self._first_fault: str | None = None
        self._reward_sum: float | None = None
        self._setup_s: float | None = None
        self._prompts: tuple[str, ...] = ()
        self.replaying = False  # what runs is in the journal already
        self.used_sandbox = False
        self._sandbox_rows = 0
        self._unwritten: tuple[Row, ...] = ()  # of the constructor, for after the session's own row

    def session_opened(self) -> asyncio.Future[bool]:
        """Write the session's row: its constructor has run, or failed by a fault of the environment."""
        durable: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.write_opening(partial(_settle, durable))
        return durable

    def write_opening(self, on_durable: OnDurable) -> None:
        """As ``session_opened``, by callback."""
        assert self._opening is not None
        row, self._opening = self._opening, None
        self._writer.add(row, on_durable)
        unwritten, self._unwritten = self._unwritten, ()
        for each in unwritten:
            self._writer.add(each)

    def opening_failed(self, error: BaseException) -> None:
        """Write the failure of the constructor; a refused session leaves no row."""
        if isinstance(error, Faulted):
            if self._opening is not None:
                self.session_opened()
            self.session_ended(error.message, error.fault, 0, None, finished=False)
        elif isinstance(error, Refused):
            self.session_ended(error.detail, error.fault, 0, None, finished=False)

    def setup_ended(self, setup_s: float, fault: str | None) -> None:
        """Keep the time of setup, and its fault, for the end of the session."""
        self._setup_s = setup_s
        self._first_fault = fault

    def record_prompt(self, kind: str, data: bytes, after: int | None) -> asyncio.Future[bool] | None:
        """Write the prompt, messages or tools that a client is about to get; the first of a kind in full.

        ``after`` is ``clock`` at the request, -1 before the end of setup; None if no code of the environment
        ran. The future is for sessions that may be rebuilt, whose replay needs all of these rows.
        """
        first = kind not in self._prompts
        if first:
            self._prompts = (*self._prompts, kind)
        if self.replayable and after is not None:
            self.clock += 1
            kept, digest = (data, None) if first else (b"", digest_of(data))
            hide = hiding_keys(self.hide, kept)
            return self._write(Prompted(self.id, kind, kept, hide, self.clock, after, digest))
        if first:
            self._writer.add(Prompted(self.id, kind, data, hiding_keys(self.hide, data)))
        return None

    def prompt_failed(self, kind: str, fault: str, after: int) -> None:
        """Write that a request for the prompt, messages or tools ended in a fault."""
        if self.replayable:
            self.clock += 1
            self._writer.add(Prompted(self.id, kind, b"", self.hide, self.clock, after, None, fault))

    def sandbox_used(self, event: SandboxEvent, call: str | None) -> None:
        """Write what the session did in a sandbox; ``call`` is the task id of the call that did it.

        What a replay repeats is written only as the sandbox that it makes. Beyond a bound nothing is.
        """
        self.used_sandbox = True
        used = isinstance(event, CommandEnded | FileUsed)
        if used and (self.replaying or self._sandbox_rows >= _MOST_SANDBOX_ROWS):
            return
        self._sandbox_rows += used
        row = sandbox_row(self.id, event, call, self.hide)
        if self._opening is None:
            self._writer.add(row)
        else:
            self._unwritten = (*self._unwritten, row)

    def call_started(self, call: Call, age_s: float) -> tuple[int, asyncio.Future[bool]]:
        """Write the start of a call before its client gets the task id; returns the row's id and future."""
        row_id = new_id()
        row = CallStarted(
            id=row_id,
            session=self.id,
            kind=call.operation,
            task_id=call.task_id,
            key=call.key,
            name=call.name,
            body=call.body or b"",
            started_at=time.time() - age_s,
            after=call.after,
            hide=hiding_keys(self.hide, call.body or b""),
        )
        return row_id, self._write(row)

    def call_ended(self, call: Call, outcome: Outcome, on_durable: OnDurable) -> None:
        """Write a computed call."""
        self.number += 1
        self.clock += 1
        fault = outcome.fault
        if fault is not None:
            self._faults += 1
            self._first_fault = self._first_fault or fault.fault
        elif outcome.reward is not None:
            self._reward_sum = (self._reward_sum or 0.0) + outcome.reward
        body, wire = call.body or b"", outcome.discarded or outcome.wire
        row = CallEnded(  # by position: 22 names cost a microsecond, in each call
            call.row_id or new_id(),
            self.id,
            self.number,
            call.operation,
            call.task_id,
            call.key,
            call.name,
            body,
            wire,
            outcome.reward,
            outcome.finished,
            bool(outcome.discarded),
            None if fault is None else fault.fault,
            None if fault is None else fault.fault_id,
            None if fault is None else fault.message,
            time.time() - call.total_s,
            outcome.queue_s,
            outcome.run_s,
            call.stream_s,
            call.total_s,
            call.after,
            hiding_keys(self.hide, body, wire),
        )
        self._writer.add(row, on_durable)

    def restore(
        self,
        prompts: tuple[str, ...],
        *,
        number: int,
        clock: int,
        faults: Sequence[str],
        reward_sum: float | None,
    ) -> None:
        """Set the counters of a rebuilt session from its rows."""
        self.replaying = False
        self._prompts = prompts
        self.number = number
        self.clock = clock
        self._faults = len(faults)
        self._first_fault = faults[0] if faults else None
        self._reward_sum = reward_sum

    def session_ended(
        self,
        reason: str,
        fault: str | None,
        calls: int,
        reward: float | None,
        *,
        finished: bool,
    ) -> asyncio.Future[bool] | None:
        """Write the end; ``fault`` is the class if a fault ended the session.

        Returns None for a refused session, which has no rows.
        """
        if self._opening is not None:
            return None
        return self._write(
            SessionEnded(
                self.id,
                time.time(),
                reason,
                fault or self._first_fault,
                calls,
                self._faults,
                reward,
                finite(self._reward_sum),
                finished,
                self._setup_s,
                self.hide,
            )
        )

    def _write(self, row: Row) -> asyncio.Future[bool]:
        durable: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._writer.add(row, partial(_settle, durable))
        return durable


def _settle(durable: asyncio.Future[bool], committed: bool) -> None:
    if not durable.done():
        durable.set_result(committed)
