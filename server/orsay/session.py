"""One session: its state, its calls, what its runtime tells of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from orsay_protocol.faults import FaultClass

from .calls import Call, CallLimits, Calls, TaskIds
from .errors import Faulted, Overloaded, Refused, SessionGone, Starting
from .faults import FaultLog
from .logs import get_logger
from .outcome import Outcome
from .running import settle
from .runtimes.base import EnvironmentInfo, Handle, Operation

__all__ = ["Session", "SessionLimits", "Shared", "State"]

_log = get_logger(__name__)

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
        "error",
        "finished",
        "handle",
        "info",
        "opened",
        "owner",
        "reward",
        "run",
        "sid",
        "state",
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
    ) -> None:
        self._shared = shared
        self.sid = sid
        self.owner = owner
        self.info = info
        self.digest = digest
        self.run = run
        self.trace = trace
        self.state: State = "opening"
        self.created_at = self.touched_at = shared.now()
        self.handle: Handle | None = None
        self.calls: Calls | None = None
        self.closing: asyncio.Task[Faulted | None] | None = None
        self.count = 0
        self._uses = 0
        self.reward: float | None = None
        self.finished = False
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
    def context(self) -> dict[str, str]:
        """What every line of the log says of this session."""
        found = {"session": self.sid, "environment": self.info.name}
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
        if error is None:
            self.enter("ready")
            return
        self.error = error
        if isinstance(error, Faulted):
            self._shared.faults.report(error, **self.context)
        self.enter("failed")

    def lost(self, fault: FaultClass, reason: str) -> None:
        self._shared.lose(self, fault, reason)

    # what it shows

    async def ask(self, handle: Handle, operation: Operation) -> bytes:
        """JSON of the prompt, the messages or the tools of this session. Raises Faulted or Refused."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        with self.in_use():
            handle.start(operation, b"", settle(future), limit_s=self.limit_s(operation))
            try:
                return await future
            except Faulted as fault:
                self._shared.faults.report(fault, **self.context)
                raise

    # calls

    def start_call(
        self, handle: Handle, operation: Operation, name: str, body: bytes, key: str | None
    ) -> Call:
        """Run the call, or find the running or finished one that this request repeats (D2)."""
        calls = self.calls
        if calls is None:
            calls = self.calls = Calls(self._shared.call_limits)
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

        def done(outcome: Outcome | None, error: Faulted | Refused | None) -> None:
            if call.outcome is None:
                self._finish(calls, call, outcome, error)

        stop = handle.start(operation, body, done, limit_s=self.limit_s(name), progress=call.hear)
        if call.outcome is None:
            call.stop = stop
        return call

    def _finish(
        self, calls: Calls, call: Call, outcome: Outcome | None, error: Faulted | Refused | None
    ) -> None:
        shared = self._shared
        now = self.touched_at = shared.now()
        if outcome is None:
            if isinstance(error, Refused):
                call.refused = error
                fault = Faulted(error.fault or "internal", error.detail)
            else:
                fault = error or Faulted("internal", "the runtime gave no answer")
            outcome = Outcome(fault=fault)
        if outcome.fault is not None:
            shared.faults.report(outcome.fault, **self.context, tool=call.name)
        if shared.log_calls:
            _log.debug(
                "call",
                session=self.sid,
                environment=self.info.name,
                tool=call.name,
                seconds=round(now - call.started_at, 4),
                reward=outcome.reward,
                fault=None if outcome.fault is None else outcome.fault.fault,
            )
        if outcome.reward is not None:
            self.reward = outcome.reward
        if outcome.finished:
            self.finished = True
        calls.finish(call, outcome, now)
        if call.refused is not None:
            calls.forget(call)
        if shared.call_limits.stored_bytes > shared.call_limits.bytes_in_all:
            shared.shed(call)
