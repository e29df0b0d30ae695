"""One session: its state, its calls, what its runtime tells of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from orsay_protocol.faults import FaultClass
from orsay_protocol.redact import NOTHING, Redactor

from ..errors import Faulted, Overloaded, Refused, SessionGone, Starting
from ..faults import FaultLog
from ..logs import get_logger
from ..runtimes.base import EnvironmentInfo, Handle, Operation, settle
from ..runtimes.outcome import Outcome
from .calls import Call, CallLimits, Calls, TaskIds
from .meter import Meter

if TYPE_CHECKING:
    from .recorder import Record

__all__ = ["REPEATABLE", "Place", "Session", "SessionLimits", "Shared", "State"]

_log = get_logger(__name__)

REPEATABLE: frozenset[FaultClass] = frozenset(
    {"tool_error", "score_error", "prompt_error", "bad_reward", "result_too_large"}
)
"""Faults of calls that ran to their end: made again in a session like it, they end in the same way."""

_NOT_RUN: frozenset[FaultClass] = frozenset({"worker_lost", "session_gone", "overloaded", "shutdown"})

Place: TypeAlias = tuple[str, str]
"""The owner and the id of a session: clients choose ids, and two owners may choose the same."""

State = Literal["opening", "starting", "ready", "failed", "closing", "closed"]


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of all sessions together; times in seconds."""

    max_sessions: int
    max_sessions_per_owner: int | None
    max_calls: int
    idle_limit_s: float
    lifetime_limit_s: float
    call_time_limit_s: float
    setup_wait_s: float
    client_grace_s: float
    gone_memory_s: float
    max_calls_per_owner: int | None = None


@dataclass(slots=True)
class Shared:
    """What all sessions of a server have in common. ``limits`` and ``log_calls`` may change meanwhile.

    ``lose`` is told of a session that its runtime lost, ``shed`` that stored results are over their bound.
    """

    limits: SessionLimits
    call_limits: CallLimits
    faults: FaultLog
    task_ids: TaskIds
    now: Callable[[], float]
    lose: Callable[[Session, FaultClass, str], None]
    shed: Callable[[Call], None]
    log_calls: bool
    meter: Meter
    needs_journal: bool = False


class Session:
    """One session. Made by ``Sessions.create``; hears from its runtime as a Listener."""

    __slots__ = (
        "_shared",
        "_uses",
        "_waiters",
        "calls",
        "closing",
        "count",
        "created_at",
        "digest",
        "end_written",
        "error",
        "finished",
        "handle",
        "hide",
        "info",
        "interrupted",
        "opened",
        "owner",
        "record",
        "reward",
        "run",
        "sid",
        "state",
        "task",
        "touched_at",
        "trace",
    )

    def __init__(
        self,
        shared: Shared,
        sid: str,
        owner: str,
        info: EnvironmentInfo,
        digest: bytes,
        run: str | None = None,
        trace: str | None = None,
        hide: Redactor = NOTHING,
    ) -> None:
        self._shared = shared
        self.sid = sid
        self.owner = owner
        self.info = info
        self.digest = digest
        self.run = run
        self.trace = trace
        self.hide = hide
        """Takes the session's secrets out of all that is said of it: the log, errors, the journal (S3)."""
        self.task = ""  # as the journal names it
        self.state: State = "opening"
        self.created_at = self.touched_at = shared.now()
        self.handle: Handle | None = None
        self.calls: Calls | None = None
        self.closing: asyncio.Task[Faulted | None] | None = None
        self.count = 0
        self._uses = 0
        self.record: Record | None = None
        self.end_written: asyncio.Future[bool] | None = None
        self.reward: float | None = None
        self.finished = False
        self.interrupted = False  # a call was stopped half-way: nobody knows what it had done
        self.error: Faulted | Refused | None = None
        self.opened: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def busy(self) -> bool:
        """Something runs for this session, so it is not idle (L3)."""
        return (
            self.state in ("opening", "starting")
            or self._uses > 0
            or (self.calls is not None and self.calls.running > 0)
        )

    @property
    def can_go_on(self) -> bool:
        """Whether it could be built again from the journal, if its runtime lost it now (L7)."""
        return (
            self.state == "ready"
            and self.record is not None
            and self.info.replayable
            and self.record.hide is None
            and not self.interrupted
            and (self.calls is None or not self.calls.running)
        )

    @property
    def place(self) -> Place:
        return self.owner, self.sid

    def report(self, fault: Faulted, **more: str) -> None:
        """Log a fault of this session, once, without the session's secrets."""
        fault.redact(self.hide)
        clean = {name: self.hide.plain(value) for name, value in more.items()}
        self._shared.faults.report(fault, owner=self.owner, **self.context, **clean)

    @property
    def context(self) -> dict[str, str]:
        """What every line of the log says of this session."""
        found = {"session": self.hide.plain(self.sid), "environment": self.info.name}
        if self.run:
            found["run"] = self.run
        if self.trace:
            found["trace"] = self.trace
        return found

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Something other than a call is asked of the environment, such as its prompt."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            self.touched_at = self._shared.now()

    async def ready(self) -> Handle:
        """The handle once setup is over.

        Waits for a bounded time. Raises Starting, SessionGone, or what setup raised.
        """
        if self.state == "ready" and self.handle is not None:
            return self.handle
        if self.state in ("opening", "starting"):
            await self._wait(self._shared.limits.setup_wait_s)
        return self.handle_now(after_setup=True)

    async def ready_to_list(self) -> Handle:
        """The handle by which to ask for the tools, which no client of the standard waits long for.

        While ``setup`` runs, but for a session that may have to be made again: in which order the two changed
        it, nobody would know. Waits and raises as ``ready``.
        """
        record, info = self.record, self.info
        if record is None or record.hide is not None or info.fixed_tools or not info.replayable:
            return self.handle_now(after_setup=False)
        return await self.ready()

    def handle_now(self, *, after_setup: bool) -> Handle:
        """The handle, or the error that stands in its place."""
        if self.state in ("closing", "closed"):
            gone = self.error if isinstance(self.error, SessionGone) else SessionGone("Session deleted")
            raise gone.with_traceback(None)
        if self.state == "failed" and self.error is not None:
            raise self.error.with_traceback(None)  # else each raise would add to the last one's traceback
        if self.handle is None or (after_setup and self.state != "ready"):
            raise Starting("Environment still starting.")
        return self.handle

    async def _wait(self, timeout_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(future)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await future

    def enter(self, state: State) -> None:
        self.state = state
        waiters, self._waiters = self._waiters, None
        for future in waiters or ():
            if not future.done():
                future.set_result(None)

    # what the runtime tells

    def setup_ended(self, error: Faulted | Refused | None) -> None:
        if self.state not in ("opening", "starting"):
            return
        self.touched_at = self._shared.now()  # setup was activity, however long it took
        if self.record is not None:
            self.record.setup_s = self.touched_at - self.created_at
        if error is None:
            self.enter("ready")
            return
        error.redact(self.hide)
        self.error = error
        if isinstance(error, Faulted):
            self.report(error)
            if self.record is not None:
                self.record.first_fault = error.fault
        self.enter("failed")

    def lost(self, fault: FaultClass, reason: str) -> None:
        self._shared.lose(self, fault, self.hide.plain(reason))

    # what it shows

    async def ask(self, handle: Handle, operation: Operation) -> bytes:
        """JSON of the prompt, the messages or the tools of this session. Raises Faulted or Refused."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        settled = settle(future)
        written: asyncio.Future[bool] | None = None
        after = self._after if self.state == "ready" else -1

        def done(answer: bytes | None, error: Faulted | Refused | None) -> None:
            nonlocal written
            if self.handle is handle:  # else it went with the place where it ran
                written = self._asked(operation, after, answer, error)
            settled(answer, error)

        with self.in_use():
            handle.start(operation, b"", done, limit_s=self.limit_s(operation))
            try:
                answer = await future
            except Refused as refused:
                refused.redact(self.hide)
                raise
            except Faulted as fault:
                self.report(fault)
                raise
            if written is not None and not written.done():
                await asyncio.shield(written)
            return answer

    def _asked(
        self, operation: Operation, after: int, answer: bytes | None, error: Faulted | Refused | None
    ) -> asyncio.Future[bool] | None:
        """Have the journal know it: what was asked may have changed the state of the session."""
        record, fixed = self.record, operation == "task_tools" and self.info.fixed_tools
        if answer is not None:
            return None if record is None else record.shown(operation, answer, None if fixed else after)
        if isinstance(error, Faulted) and not fixed and error.fault not in _NOT_RUN:
            self.interrupted = self.interrupted or error.fault not in REPEATABLE
            if record is not None:
                record.not_shown(operation, error.fault, after)
        return None

    @property
    def _after(self) -> int:
        """How much has ended in this session; what begins now comes after that."""
        return 0 if self.record is None else self.record.clock

    # calls

    def start_call(
        self, handle: Handle, operation: Operation, name: str, body: bytes, key: str | None
    ) -> Call:
        """Run the call, or find the running or finished one that this request repeats (D2)."""
        calls = self.calls
        if calls is None:
            calls = self.calls = Calls(self._shared.call_limits, self.owner)
        else:
            found = calls.find_retry(operation, body, key)
            if found is not None:
                self._shared.call_limits.orphans.discard(found)
                return found
        return self._run(calls, handle, operation, name, body, key)

    def attach(self, task_id: str, operation: Operation) -> Call:
        """The call of that task id, if it is one of this session (D5). Raises Faulted (unknown_task_id)."""
        call = self.calls.find(task_id, operation) if self.calls is not None else None
        if call is None:
            raise Faulted("unknown_task_id", "unknown task_id")
        self._shared.call_limits.orphans.discard(call)
        return call

    def now(self) -> float:
        """Seconds of the server's clock, as in ``created_at``."""
        return self._shared.now()

    def resume(self, handle: Handle) -> Calls:
        """It was built again after a restart; returns its calls, none so far."""
        self.handle = handle
        self.touched_at = self._shared.now()
        self.calls = Calls(self._shared.call_limits, self.owner)
        return self.calls

    def begin_again(self, call: Call) -> None:
        """Start a call anew that had begun before a restart, under its old task id."""
        assert self.calls is not None and self.handle is not None
        self.calls.add(call)
        self.count += 1
        self._start(self.calls, self.handle, call, call.body or b"")

    async def announce(self, call: Call) -> None:
        """The client is about to read the call's task id: where the session could go on after a restart, have
        the journal know it before, so that the client can ask for it then. Returns when that is written, or
        given up.
        """
        call.streamed_at = self._shared.now()
        record = self.record
        if record is None or call.answered or not self.info.replayable or record.hide is not None:
            return
        if call.announced is None:
            if call.entry:  # begun anew after a restart: the journal has it
                return
            call.entry, call.announced = record.started(
                call.operation,
                call.task_id,
                call.key,
                call.name,
                call.body or b"",
                call.streamed_at - call.started_at,
                call.after,
            )
        if not call.announced.done():
            await asyncio.shield(call.announced)

    def cancel(self, task_id: str | None, key: str | None) -> bool:
        """Stop the running call of that task id or idempotency key; it is answered as ``cancelled``.

        Tells whether there is one; nothing is waited for.
        """
        if self.calls is None:
            return False
        call = self.calls.find(task_id) if task_id is not None else self.calls.find_key(key or "")
        if call is None or call.stop is None:
            return False
        call.stop()
        return True

    def limit_s(self, name: str) -> float:
        """Time limit of a call of tool ``name`` (I5)."""
        info = self.info
        return (
            info.tool_time_limits_s.get(name)
            or info.call_time_limit_s
            or self._shared.limits.call_time_limit_s
        )

    def _run(
        self, calls: Calls, handle: Handle, operation: Operation, name: str, body: bytes, key: str | None
    ) -> Call:
        shared = self._shared
        if shared.call_limits.in_flight >= shared.limits.max_calls:
            raise Overloaded(f"server at maximum capacity: {shared.limits.max_calls} calls are running")
        most = shared.limits.max_calls_per_owner
        if most is not None and calls.share.in_flight >= most:
            raise Overloaded(
                f"this key is at maximum capacity: {most} calls are running;"
                " ORSAY_MAX_CALLS_PER_KEY bounds it"
            )
        call = Call(
            shared.task_ids.next(),
            operation,
            name,
            body,
            key,
            shared.now(),
            detached=name in self.info.detached_tools,
        )
        calls.add(call)
        self.count += 1

        self._start(calls, handle, call, body)
        return call

    def _start(self, calls: Calls, handle: Handle, call: Call, body: bytes) -> None:
        def done(outcome: Outcome | None, error: Faulted | Refused | None) -> None:
            if not call.answered:
                self._answered(calls, call, outcome, error)

        if self.record is not None:
            call.after = self.record.clock
        stop = handle.start(call.operation, body, done, limit_s=self.limit_s(call.name), progress=call.hear)
        if not call.answered:
            call.stop = stop

    def _answered(
        self, calls: Calls, call: Call, outcome: Outcome | None, error: Faulted | Refused | None
    ) -> None:
        """The runtime's answer; clients read it once the journal has it (D6)."""
        shared = self._shared
        now = self.touched_at = shared.now()
        if outcome is None:
            if error is not None:
                error.redact(self.hide)
            if isinstance(error, Refused):
                call.refused = error
                failure = Faulted(error.fault or "internal", error.detail)
            else:
                failure = error or Faulted("internal", "the runtime gave no answer")
            outcome = Outcome(fault=failure)
        call.answer(outcome)
        fault = outcome.fault
        if fault is not None:
            self.report(fault, tool=call.name)
            self.interrupted = self.interrupted or (call.refused is None and fault.fault not in REPEATABLE)
        streamed_s = None if call.streamed_at is None else now - call.streamed_at
        shared.meter.call_ended(
            self.info.name,
            call.name,
            None if fault is None else fault.fault,
            now - call.started_at,
            outcome.queue_s,
            outcome.run_s,
            streamed_s,
        )
        if shared.log_calls:
            _log.debug(
                "call",
                session=self.hide.plain(self.sid),
                environment=self.info.name,
                tool=self.hide.plain(call.name),
                seconds=round(now - call.started_at, 4),
                reward=outcome.reward,
                fault=None if fault is None else fault.fault,
            )
        if outcome.reward is not None:
            self.reward = outcome.reward
        if outcome.finished:
            self.finished = True
        record = self.record
        if record is None or call.refused is not None:
            self._settle(calls, call, outcome)
            return
        record.finished(
            call.entry,
            call.operation,
            call.task_id,
            call.key,
            call.name,
            call.body or b"",
            outcome,
            None if fault is None else fault.fault_id,
            streamed_s,
            now - call.started_at,
            call.after,
            partial(self._written, calls, call, outcome),
        )

    def _written(self, calls: Calls, call: Call, outcome: Outcome, committed: bool) -> None:
        if call.outcome is not None:  # the session ended meanwhile
            return
        if not committed and self._shared.needs_journal:
            lost = Faulted("internal", "the journal could not take the result")
            self.report(lost, tool=call.name)
            outcome = Outcome(fault=lost)
        self._settle(calls, call, outcome)

    def _settle(self, calls: Calls, call: Call, outcome: Outcome) -> None:
        shared = self._shared
        calls.finish(call, outcome, shared.now())
        if call.refused is not None or self.calls is not calls:  # or the session ended meanwhile
            calls.forget(call)
        if shared.call_limits.stored_bytes > shared.call_limits.bytes_in_all:
            shared.shed(call)
