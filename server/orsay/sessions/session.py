"""A session: one episode from ``/create`` to its end, with its prompt, its calls and its record.

Its states are in ``lifecycle``, its calls in ``calls``, its rows of the journal in ``recorder``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from orsay_protocol.faults import FaultClass
from orsay_protocol.redact import NOTHING, Redactor

from ..errors import Faulted, Refused, SessionGone, Starting
from ..logs import get_logger
from ..runtimes.base import EnvironmentInfo, Handle, OnResult, Operation, settle
from ..runtimes.outcome import Outcome
from ..sandboxes.events import SandboxEvent
from .call import Call, Reader
from .calls import Calls
from .lifecycle import Lifecycle
from .shared import Shared
from .timers import joined

if TYPE_CHECKING:
    from .recorder import Record

__all__ = ["REPEATABLE", "SANDBOX_IS_GONE", "Session", "SessionKey"]

_log = get_logger(__name__)

REPEATABLE: frozenset[FaultClass] = frozenset(
    {"tool_error", "score_error", "prompt_error", "bad_reward", "result_too_large"}
)
"""Faults of calls that ran to their end: in a replay they end in the same way."""

SANDBOX_IS_GONE = "its sandbox is gone, and commands are not declared repeatable (repeatable_commands)"
"""Why a session that used a sandbox is not built again."""

_NOT_RUN: frozenset[FaultClass] = frozenset({"worker_lost", "session_gone", "overloaded", "shutdown"})

SessionKey: TypeAlias = tuple[str, str]
"""The owner and the id of a session: clients choose ids, and two owners may choose the same."""


class Session(Lifecycle):
    """One session, and the Listener of its runtime. Made by ``Sessions.create``."""

    __slots__ = (
        "_call_count",
        "_calls",
        "_end_durable",
        "_finished",
        "_info",
        "_interrupted",
        "_reward",
        "_run",
        "_shared",
        "_task",
        "_trace",
        "_uses",
        "created_at",
        "digest",
        "hide",
        "owner",
        "record",
        "sid",
        "touched_at",
    )

    def __init__(
        self,
        shared: Shared[Session],
        sid: str,
        owner: str,
        info: EnvironmentInfo,
        digest: bytes,
        *,
        task: str = "",
        run: str | None = None,
        trace: str | None = None,
        hide: Redactor = NOTHING,
        record: Record | None = None,
    ) -> None:
        super().__init__()
        self.sid: Final = sid
        self.owner: Final = owner
        self.digest: Final = digest
        """Hash of the request that created it."""
        self.hide: Final = hide
        """Redactor of the session's secrets, for the log, errors and the journal (S3)."""
        self.record: Final = record
        """The session's rows in the journal; None without a journal."""
        self.created_at: Final = shared.now()
        self._shared = shared
        self._info = info
        self._task = task
        self._run = run
        self._trace = trace
        self.touched_at = self.created_at
        """Time of the last activity."""
        self._calls: Calls | None = None
        self._call_count = 0
        self._uses = 0
        self._reward: float | None = None
        self._finished = False
        self._interrupted = False  # a call was stopped half-way: its effect is unknown
        self._end_durable: asyncio.Future[bool] | None = None

    @property
    def key(self) -> SessionKey:
        return self.owner, self.sid

    @property
    def info(self) -> EnvironmentInfo:
        return self._info

    @property
    def task(self) -> str:
        """Name of the task in the journal."""
        return self._task

    @property
    def run(self) -> str | None:
        return self._run

    @property
    def trace(self) -> str | None:
        return self._trace

    @property
    def calls(self) -> Calls | None:
        """Calls that run or are stored; None before the first and after the session left its runtime."""
        return self._calls

    @property
    def call_count(self) -> int:
        return self._call_count

    @property
    def reward(self) -> float | None:
        """The last reward."""
        return self._reward

    @property
    def finished(self) -> bool:
        """True once a call has finished the episode."""
        return self._finished

    @property
    def end_durable(self) -> asyncio.Future[bool] | None:
        """Future of the end: done when the journal has it; None before the end."""
        return self._end_durable

    @property
    def busy(self) -> bool:
        """True while something runs for this session: it is not idle then (L3)."""
        return (
            self._state in ("opening", "starting")
            or self._uses > 0
            or (self._calls is not None and self._calls.running > 0)
        )

    @property
    def rebuildable(self) -> bool:
        """True if the session could be rebuilt from the journal if its runtime was lost now (L7)."""
        return self._replayable_now and not self.needs_sandbox

    @property
    def needs_sandbox(self) -> bool:
        """True if what the session did in sandboxes would be missing, and keeps it from being rebuilt."""
        used = self.record is not None and self.record.used_sandbox
        return used and self._info.replayable and not self._info.repeatable_commands

    @property
    def _replayable_now(self) -> bool:
        return (
            self._state == "ready"
            and self.record is not None
            and self._info.replayable
            and self.record.hide is None
            and not self._interrupted
            and (self._calls is None or not self._calls.running)
        )

    @property
    def context(self) -> dict[str, str]:
        """Fields of this session in every line of the log."""
        found = {"session": self.hide.plain(self.sid), "environment": self._info.name}
        if self._run:
            found["run"] = self._run
        if self._trace:
            found["trace"] = self._trace
        return found

    # as the tenant of its sandboxes

    @property
    def tenant(self) -> Session:
        return self

    @property
    def journal_id(self) -> int | None:
        return None if self.record is None else self.record.id

    @property
    def running_call(self) -> str | None:
        calls = [] if self._calls is None else self._calls.uncomputed
        names = {call.name for call in calls}
        if len(calls) > 1 and not (len(names) == 1 and self._runs_in_turn(calls[0].name)):
            return None
        return calls[0].task_id if calls else None

    def _runs_in_turn(self, tool: str) -> bool:
        """True where calls of that tool wait for one another, in the order in which they came."""
        return tool in self._info.serial_tools or tool in self._info.exclusive_tools

    def sandbox_used(self, event: SandboxEvent, call: str | None) -> None:
        if self.record is not None:
            self.record.sandbox_used(event, call)

    def now(self) -> float:
        """Seconds of the server's clock, as in ``created_at``."""
        return self._shared.now()

    def touch(self) -> None:
        """Note activity of a client."""
        self.touched_at = self._shared.now()

    def report(self, fault: Faulted, **more: str) -> None:
        """Log a fault of this session, once, without the session's secrets."""
        fault.redact(self.hide)
        clean = {name: self.hide.plain(value) for name, value in more.items()}
        self._shared.faults.report(fault, owner=self.owner, **self.context, **clean)

    # transitions

    def opening_failed(self, error: BaseException) -> None:
        """Close a session whose constructor failed, or which the runtime refused."""
        self._opening = None
        if isinstance(error, Faulted):
            self.report(error)
        self._enter("closed", error if isinstance(error, Faulted | Refused) else None)
        if self.record is not None:
            self.record.opening_failed(error)

    def setup_ended(self, error: Faulted | Refused | None) -> None:
        """Listener: setup is over; this may come before ``opened``."""
        if self._state not in ("opening", "starting"):
            return
        self.touched_at = self._shared.now()  # setup was activity, however long it took
        if error is not None:
            error.redact(self.hide)
        if isinstance(error, Faulted):
            self.report(error)
        if self.record is not None:
            fault = error.fault if isinstance(error, Faulted) else None
            self.record.setup_ended(self.touched_at - self.created_at, fault)
        self._enter("ready" if error is None else "failed", error)

    def lost(self, fault: FaultClass, reason: str) -> None:
        """Listener: the process, container or server where the environment ran is gone."""
        self._shared.on_lost(self, fault, self.hide.plain(reason))

    def describe(self, info: EnvironmentInfo, task: str, run: str | None, trace: str | None) -> None:
        """Set the facts of a rebuilt session from the journal."""
        self._info, self._task, self._run, self._trace = info, task, run, trace

    def rebuilt(self, handle: Handle, stored: Iterable[tuple[Call, Outcome]], begun: Iterable[Call]) -> None:
        """End the replay: store the recorded outcomes, and start unfinished calls again."""
        self._opening = None
        self._handle = handle
        self.touch()
        calls = self._calls = Calls(self._shared.totals, self.owner)
        for call, outcome in stored:
            calls.restore(call, outcome, self.touched_at)
            self._call_count += 1
            self._reward = self._reward if outcome.reward is None else outcome.reward
            self._finished = self._finished or outcome.finished
        for call in begun:
            calls.add(call)
            self._call_count += 1
            on_result = partial(self._computed, calls, call)
            call.run(handle, on_result, limit_s=self.limit_s(call.name), after=self._clock)
        self._enter("ready")

    def suspend(self, error: Starting) -> None:
        """Leave the runtime; the session is rebuilt at the next request for it."""
        self._enter("failed", error)
        self._leave_runtime()

    def end(self, error: SessionGone, label: str) -> None:
        """Close for good. ``label`` is the reason in the metrics: an EndReason or the class of a fault."""
        self._enter("closed", error)
        self._leave_runtime()
        if self.record is not None:
            ended_by = None if error.fault == "session_gone" else error.fault
            self._end_durable = self.record.session_ended(
                error.detail, ended_by, self._call_count, self._reward, finished=self._finished
            )
        age_s = self._shared.now() - self.created_at
        self._shared.meter.session_ended(self._info.name, label, age_s)
        _log.info(
            "session_ended",
            **self.context,
            reason=error.detail,
            calls=self._call_count,
            reward=self._reward,
            finished=self._finished,
            age_s=round(age_s, 3),
        )

    def _leave_runtime(self) -> None:
        self._opening = None
        self._handle = None
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.clear()

    # the handle

    async def ready(self) -> Handle:
        """The handle once setup is over.

        Waits for a bounded time. Raises Starting, SessionGone, or what setup raised.
        """
        if self.ready_handle is not None:
            return self.ready_handle
        if self._state in ("opening", "starting"):
            await self._setup_over(self._shared.limits.setup_wait_s)
        return self.handle_now(after_setup=True)

    async def ready_to_list(self) -> Handle:
        """The handle for listing tools, for which clients of the standard do not wait long.

        Available while ``setup`` runs, except in a session that may be rebuilt and whose listing runs code of
        the environment: the order of the two would not be known. Waits and raises as ``ready``.
        """
        record, info = self.record, self._info
        if record is None or record.hide is not None or info.fixed_tools or not info.replayable:
            return self.handle_now(after_setup=False)
        return await self.ready()

    # prompt, messages, tools

    async def ask(self, handle: Handle, operation: Operation) -> bytes:
        """JSON of the prompt, the messages or the tools of this session. Raises Faulted or Refused."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.start_ask(handle, operation, settle(future))
        return await future

    def start_ask(self, handle: Handle, operation: Operation, on_result: OnResult) -> None:
        """``ask`` by callback, called when the answer may be shown."""
        after = self._clock if self._state == "ready" else -1

        def answered(answer: bytes | None, error: Faulted | Refused | None) -> None:
            durable = None
            if self._handle is handle:  # else the session has left that runtime
                durable = self._record_prompt(operation, after, answer, error)
            if durable is None or durable.done():
                shown(answer, error)
            else:
                durable.add_done_callback(lambda _: shown(answer, error))

        def shown(answer: bytes | None, error: Faulted | Refused | None) -> None:
            self._uses -= 1
            self.touch()
            if isinstance(error, Faulted):
                self.report(error)
            elif error is not None:
                error.redact(self.hide)
            on_result(answer, error)

        self._uses += 1
        handle.start(operation, b"", answered, limit_s=self.limit_s(operation))

    def _record_prompt(
        self, operation: Operation, after: int, answer: bytes | None, error: Faulted | Refused | None
    ) -> asyncio.Future[bool] | None:
        """Write the answer to the journal: the hook of the environment may have changed its state."""
        record, fixed = self.record, operation == "task_tools" and self._info.fixed_tools
        if answer is not None:
            if record is None:
                return None
            return record.record_prompt(operation, answer, None if fixed else after)
        if isinstance(error, Faulted) and not fixed and error.fault not in _NOT_RUN:
            self._interrupted = self._interrupted or error.fault not in REPEATABLE
            if record is not None:
                record.prompt_failed(operation, error.fault, after)
        return None

    @property
    def _clock(self) -> int:
        """Logical clock of the session: the steps that it has counted precede a step that begins now."""
        return 0 if self.record is None else self.record.clock

    # calls

    def start_call(
        self, handle: Handle, operation: Operation, name: str, body: bytes, key: str | None
    ) -> Call:
        """Start a call, or find the running or stored one that this request repeats (D2).

        Raises Overloaded and KeyConflict.
        """
        shared, calls, record = self._shared, self._calls, self.record
        if calls is None:
            calls = self._calls = Calls(shared.totals, self.owner)
        elif key is not None or calls.running or calls.abandoned:
            found = calls.find_retry(operation, body, key)
            if found is not None:
                calls.reclaim(found)
                return found
        detached = name in self._info.detached_tools
        call = Call(next(shared.task_ids), operation, name, body, key, shared.now(), detached=detached)
        calls.add(call, shared.limits)
        self._call_count += 1
        on_result = partial(self._computed, calls, call)
        after = 0 if record is None else record.clock
        call.run(handle, on_result, limit_s=self.limit_s(name), after=after)
        return call

    def attach(self, task_id: str, operation: Operation) -> Call:
        """The call of that task id, if it is one of this session (D5). Raises Faulted (unknown_task_id)."""
        calls = self._calls
        call = calls.find(task_id, operation) if calls is not None else None
        if calls is None or call is None:
            raise Faulted("unknown_task_id", "unknown task_id")
        calls.reclaim(call)
        return call

    def leave(self, call: Call, reader: Reader, *, complete: bool) -> None:
        """End reading a call; not ``complete``: the connection broke before the result was sent (L5)."""
        if call.leave(reader, complete=complete):
            self.abandon(call)

    def abandon(self, call: Call) -> None:
        """Start the grace period of a call without a reader, whose result nobody got (L5)."""
        if self._calls is not None:
            self._calls.abandon(call, self._shared.now())

    def cancel(self, task_id: str | None, key: str | None) -> bool:
        """Stop the running call of that task id or idempotency key; its outcome is the fault ``cancelled``.

        Returns at once: True if there is one.
        """
        if self._calls is None:
            return False
        call = self._calls.find(task_id) if task_id is not None else self._calls.find_key(key or "")
        if call is None or call.stop is None:
            return False
        call.stop()
        return True

    async def begin_stream(self, call: Call) -> None:
        """Note that the answer becomes a stream, whose first event is the call's task id.

        In a session that may be rebuilt the start of the call is made durable first, so that the client can
        use that id after a restart. Returns when it is durable, or the wait is given up.
        """
        age_s = call.stream(self._shared.now())
        record = self.record
        if (
            record is None
            or call.computed is not None
            or record.hide is not None
            or not self._info.replayable
        ):
            return
        if call.start_durable is None:
            if call.row_id:  # begun anew after a restart: the journal has it
                return
            call.start_written(*record.call_started(call, age_s))
        assert call.start_durable is not None
        await joined(call.start_durable)

    def limit_s(self, name: str) -> float:
        """Time limit of a call of tool ``name`` (I5)."""
        info = self._info
        return (
            info.tool_time_limits_s.get(name)
            or info.call_time_limit_s
            or self._shared.limits.call_time_limit_s
        )

    def _failure(self, call: Call, error: Faulted | Refused | None) -> Outcome:
        """Outcome of a call without an answer; a refused call did not run."""
        if error is not None:
            error.redact(self.hide)
        if isinstance(error, Refused):
            call.refuse(error)
            error = Faulted(error.fault or "internal", error.detail)
        return Outcome(fault=error or Faulted("internal", "the runtime gave no answer"))

    def _computed(
        self, calls: Calls, call: Call, outcome: Outcome | None, error: Faulted | Refused | None
    ) -> None:
        """Callback of the runtime: count, log and record the outcome, to be published when durable (D6)."""
        if call.computed is not None:  # cancelled, when the session ended
            return
        if outcome is None:
            outcome = self._failure(call, error)
        shared, record = self._shared, self.record
        now = self.touched_at = shared.now()
        call.compute(outcome, now)
        fault: FaultClass | None = None
        if outcome.fault is not None:
            fault = outcome.fault.fault
            self._note_fault(call, outcome.fault)
        if outcome.reward is not None:
            self._reward = outcome.reward
        if outcome.finished:
            self._finished = True
        shared.meter.call_ended(
            self._info.name, call.name, fault, call.total_s, outcome.queue_s, outcome.run_s, call.stream_s
        )
        if shared.log_calls:
            self._log_call(call, outcome)
        if record is None or (call.refused is not None and not call.row_id):
            self._publish(calls, call, outcome)
        else:
            record.call_ended(call, outcome, partial(self._publish, calls, call, outcome))

    def _note_fault(self, call: Call, fault: Faulted) -> None:
        self.report(fault, tool=call.name)
        if call.refused is None and fault.fault not in REPEATABLE:
            self._interrupted = True

    def _log_call(self, call: Call, outcome: Outcome) -> None:
        _log.debug(
            "call",
            session=self.hide.plain(self.sid),
            environment=self._info.name,
            tool=self.hide.plain(call.name),
            seconds=round(call.total_s, 4),
            reward=outcome.reward,
            fault=None if outcome.fault is None else outcome.fault.fault,
        )

    def _publish(self, calls: Calls, call: Call, outcome: Outcome, committed: bool = True) -> None:
        """Callback of the journal: show readers the outcome, which is committed, given up, or has no row.

        The outcome of a call that did not run is not stored.
        """
        shared = self._shared
        if not committed and shared.needs_journal:
            lost = Faulted("internal", "the journal could not take the result")
            self.report(lost, tool=call.name)
            outcome = Outcome(fault=lost)
        calls.publish(call, outcome, shared.now())
        if call.refused is not None or self._calls is not calls:  # or the session ended meanwhile
            calls.evict(call)
        if shared.totals.stored_bytes > shared.totals.limits.bytes_in_all:
            shared.evict(call)
