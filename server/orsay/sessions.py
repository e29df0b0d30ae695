"""Sessions: one episode each, from ``/create`` to its end, as a state machine.

    opening -> starting -> ready -> closing -> closed
       |          |                   ^
       |          +----> failed ------+
       +-- the constructor failed: the session never was

Every way out leads through ``Sessions.close`` or ``Session.lost``; both leave a tombstone that tells why.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from orsay_protocol.faults import FaultClass

from .calls import Call, CallLimits, Calls, TaskIds
from .delays import Delay
from .errors import (
    Faulted,
    OpeningLost,
    Overloaded,
    Refused,
    SessionConflict,
    SessionGone,
    ShuttingDown,
    Starting,
    UnknownSession,
)
from .faults import FaultLog
from .graveyard import Graveyard, Tombstone
from .logs import get_logger
from .outcome import Outcome
from .runtimes.base import EnvironmentInfo, Handle, OpenSession, Operation, Runtime

__all__ = ["Session", "SessionLimits", "Sessions"]

_log = get_logger(__name__)
_SWEEP_S = 1.0

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
    setup_time_limit_s: float
    setup_wait_s: float
    client_grace_s: float
    gone_memory_s: float


class Session:
    """One session. Made by ``Sessions.create``; hears from its runtime as a Listener."""

    __slots__ = (
        "_error",
        "_opened",
        "_registry",
        "_waiters",
        "calls",
        "closing",
        "count",
        "created_at",
        "digest",
        "finished",
        "handle",
        "info",
        "owner",
        "reward",
        "sid",
        "state",
        "touched_at",
    )

    def __init__(
        self, registry: Sessions, sid: str, owner: str, info: EnvironmentInfo, digest: bytes, now: float
    ) -> None:
        self._registry = registry
        self.sid = sid
        self.owner = owner
        self.info = info
        self.digest = digest
        self.state: State = "opening"
        self.created_at = self.touched_at = now
        self.handle: Handle | None = None
        self.calls: Calls | None = None
        self.closing: asyncio.Task[None] | None = None
        self.count = 0
        self.reward: float | None = None
        self.finished = False
        self._error: Faulted | Refused | None = None
        self._opened: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def busy(self) -> bool:
        """Something runs for this session, so it is not idle (L3)."""
        return self.state in ("opening", "starting") or (self.calls is not None and self.calls.running > 0)

    async def ready(self) -> Handle:
        """The handle once setup is over.

        Waits for a bounded time. Raises Starting, SessionGone, or what setup raised.
        """
        if self.state == "ready" and self.handle is not None:
            return self.handle
        if self.state in ("opening", "starting"):
            await self._wait(self._registry.limits.setup_wait_s)
        return self.handle_now(after_setup=True)

    def handle_now(self, *, after_setup: bool) -> Handle:
        """The handle, or the error that stands in its place."""
        if self.state in ("closing", "closed"):
            raise self._error if isinstance(self._error, SessionGone) else SessionGone("Session deleted")
        if self.state == "failed" and self._error is not None:
            raise self._error
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

    def _enter(self, state: State) -> None:
        self.state = state
        waiters, self._waiters = self._waiters, None
        for future in waiters or ():
            if not future.done():
                future.set_result(None)

    # what the runtime tells

    def setup_ended(self, error: Faulted | Refused | None) -> None:
        if self.state not in ("opening", "starting"):
            return
        if error is None:
            self._enter("ready")
            return
        self._error = error
        if isinstance(error, Faulted):
            self._registry.faults.report(error, session=self.sid, environment=self.info.name)
        self._enter("failed")

    def lost(self, fault: FaultClass, reason: str) -> None:
        self._registry.lose(self, fault, reason)

    # calls

    def start_call(
        self, handle: Handle, operation: Operation, name: str, body: bytes, key: str | None
    ) -> Call:
        """Run the call, or find the running or finished one that this request repeats (D2)."""
        calls = self.calls
        if calls is None:
            calls = self.calls = Calls(self._registry.call_limits)
        else:
            found = calls.find_retry(operation, body, key)
            if found is not None:
                self._registry.call_limits.orphans.discard(found)
                return found
        return self._registry.run_call(self, calls, handle, operation, name, body, key)

    def attach(self, task_id: str, operation: Operation) -> Call:
        """The call of that task id, if it is one of this session (D5). Raises Faulted (unknown_task_id)."""
        call = self.calls.find(task_id, operation) if self.calls is not None else None
        if call is None:
            raise Faulted("unknown_task_id", "unknown task_id")
        self._registry.call_limits.orphans.discard(call)
        return call

    def limit_s(self, name: str) -> float:
        """Time limit of a call of tool ``name`` (I5)."""
        info = self.info
        return (
            info.tool_time_limits_s.get(name)
            or info.call_time_limit_s
            or self._registry.limits.call_time_limit_s
        )


class Sessions:
    """All live sessions of a server, and the tombstones of those that were."""

    def __init__(
        self,
        runtime: Runtime,
        limits: SessionLimits,
        call_limits: CallLimits,
        faults: FaultLog,
        *,
        log_calls: bool = False,
    ) -> None:
        self._log_calls = log_calls
        self.runtime = runtime
        self.limits = limits
        self.call_limits = call_limits
        self.faults = faults
        self._live: dict[str, Session] = {}
        self._gone = Graveyard(memory_s=limits.gone_memory_s)
        self._per_owner: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._hurried = False
        self._task_ids = TaskIds()
        self._now = asyncio.get_running_loop().time
        self._sweeper: asyncio.Task[None] | None = None
        self._calls_since_sweep = 0

    def __len__(self) -> int:
        return len(self._live)

    def start(self) -> None:
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    # opening

    async def create(self, sid: str, owner: str, info: EnvironmentInfo, request: OpenSession) -> Session:
        """Open a session, or join the one that the same request opened (L1).

        Returns when the constructor has run. Raises SessionConflict, Overloaded, ShuttingDown, and what
        ``Runtime.open`` raises.
        """
        digest = hashlib.blake2b(request.model_dump_json().encode(), digest_size=16).digest()
        session = self._live.get(sid)
        if session is None:
            self._admit(owner)
            session = Session(self, sid, owner, info, digest, self._now())
            self._live[sid] = session
            self._per_owner[owner] += 1
            session._opened = self._spawn(self._open(session, request))
        elif session.owner != owner or session.digest != digest:
            raise SessionConflict(f"Session already exists: {sid!r} was created with another request")
        elif session.state in ("closing", "closed"):
            raise SessionGone("Session deleted")
        if session._opened is not None:
            await asyncio.shield(session._opened)
        session.touched_at = self._now()
        return session

    def _admit(self, owner: str) -> None:
        if self._stopping:
            raise ShuttingDown("the server is shutting down and takes no new sessions")
        limits = self.limits
        if len(self._live) >= limits.max_sessions:
            raise Overloaded(f"server at maximum capacity: {limits.max_sessions} sessions")
        if (
            limits.max_sessions_per_owner is not None
            and self._per_owner[owner] >= limits.max_sessions_per_owner
        ):
            raise Overloaded(f"this key is at maximum capacity: {limits.max_sessions_per_owner} sessions")

    async def _open(self, session: Session, request: OpenSession) -> None:
        try:
            session.handle = await self.runtime.open(request, session)
        except asyncio.CancelledError:
            if session.state == "closing":
                raise SessionGone("Session deleted while it was constructed") from None
            raise
        except BaseException as error:
            if session.state != "closing":
                if isinstance(error, Faulted):
                    self.faults.report(error, session=session.sid, environment=session.info.name)
                session._error = error if isinstance(error, Faulted | Refused) else None
                self._forget(session)
                session._enter("closed")
                if isinstance(error, Faulted) and error.fault == "worker_lost":
                    raise OpeningLost(error.message) from error
            raise
        finally:
            session._opened = None
        if session.state == "opening":
            session.state = "starting"

    # looking up

    def get(self, sid: str, owner: str) -> Session:
        """The live session, touched. Raises SessionGone or UnknownSession (L4)."""
        session = self._live.get(sid)
        if session is None or session.owner != owner:
            raise self._missing(sid, owner)
        session.touched_at = self._now()
        return session

    def _missing(self, sid: str, owner: str) -> Refused:
        tombstone = self._gone.find(sid, owner, self._now())
        if tombstone is None:
            return UnknownSession("Active environment not found: no session of this id; create one first")
        gone = SessionGone(tombstone.reason)
        gone.fault = tombstone.fault
        return gone

    # calls

    def run_call(
        self,
        session: Session,
        calls: Calls,
        handle: Handle,
        operation: Operation,
        name: str,
        body: bytes,
        key: str | None,
    ) -> Call:
        limits = self.call_limits
        if limits.in_flight >= self.limits.max_calls:
            raise Overloaded(f"server at maximum capacity: {self.limits.max_calls} calls are running")
        call = Call(
            self._task_ids.next(),
            operation,
            name,
            body,
            key,
            self._now(),
            detached=name in session.info.detached_tools,
        )
        calls.add(call)
        session.count += 1

        def done(outcome: Outcome | None, error: Faulted | Refused | None) -> None:
            if call.outcome is None:
                self._finish(session, calls, call, outcome, error)

        stop = handle.start(operation, body, done, limit_s=session.limit_s(name))
        if call.outcome is None:
            call.stop = stop
        return call

    def _finish(
        self,
        session: Session,
        calls: Calls,
        call: Call,
        outcome: Outcome | None,
        error: Faulted | Refused | None,
    ) -> None:
        now = session.touched_at = self._now()
        if outcome is None:
            if isinstance(error, Refused):
                call.refused = error
                fault = Faulted(error.fault or "internal", error.detail)
            else:
                fault = error or Faulted("internal", "the runtime gave no answer")
            outcome = Outcome(fault=fault)
        if outcome.fault is not None:
            self.faults.report(
                outcome.fault, session=session.sid, environment=session.info.name, tool=call.name
            )
        if self._log_calls:
            _log.debug(
                "call",
                session=session.sid,
                environment=session.info.name,
                tool=call.name,
                seconds=round(now - call.started_at, 4),
                reward=outcome.reward,
                fault=None if outcome.fault is None else outcome.fault.fault,
            )
        if outcome.reward is not None:
            session.reward = outcome.reward
        if outcome.finished:
            session.finished = True
        calls.finish(call, outcome, now)
        if call.refused is not None:
            calls.forget(call)
        if self.call_limits.stored_bytes > self.call_limits.bytes_in_all:
            self._shed(keep=call)

    def _shed(self, keep: Call) -> None:
        """Drop the oldest results of all sessions, some more than needed: this looks at every one."""
        stored = [
            (call.ended_at, number, calls, call)
            for number, calls in enumerate(s.calls for s in self._live.values() if s.calls is not None)
            for call in calls.finished()
            if call is not keep
        ]
        stored.sort(key=lambda each: each[:2])
        for _, _, calls, call in stored:
            if self.call_limits.stored_bytes <= 0.75 * self.call_limits.bytes_in_all:
                break
            calls.forget(call)

    def orphan(self, call: Call) -> None:
        """Nobody reads the call any more; it is stopped unless somebody comes back in time (L5)."""
        self.call_limits.orphans.add(call)

    # closing

    async def delete(self, sid: str, owner: str) -> None:
        """End the session, if there is one, and wait until it is torn down (L2)."""
        session = self._live.get(sid)
        if session is not None and session.owner == owner:
            await self.close(session, "Session deleted")

    async def close(self, session: Session, reason: str) -> None:
        """Stop what runs and tear down, once; everybody who asks waits for the same end."""
        if session.closing is None:
            session._error = SessionGone(reason)
            session._enter("closing")
            session.closing = self._spawn(self._close(session, reason))
        await asyncio.shield(session.closing)

    async def _close(self, session: Session, reason: str) -> None:
        try:
            opened = session._opened
            if opened is not None:
                opened.cancel()
                await asyncio.wait([opened])
            if session.handle is not None:
                await session.handle.close()
        except Faulted as fault:
            self.faults.report(fault, session=session.sid, environment=session.info.name, during="teardown")
        except Refused:
            pass  # the runtime is gone; there is nothing left to tear down
        finally:
            self._bury(session, reason, "session_gone")

    def lose(self, session: Session, fault: FaultClass, reason: str) -> None:
        """The runtime lost the session (I4)."""
        if self._live.get(session.sid) is session and session.closing is None:
            session._error = SessionGone(reason)
            session._error.fault = fault
            self._bury(session, reason, fault)

    def _bury(self, session: Session, reason: str, fault: FaultClass) -> None:
        now = self._now()
        self._forget(session)
        session._enter("closed")
        session.handle = None
        if session.calls is not None:
            session.calls.clear()
            session.calls = None
        self._gone.bury(session.sid, session.owner, Tombstone(reason, fault), now)
        _log.info(
            "session_ended",
            session=session.sid,
            environment=session.info.name,
            reason=reason,
            calls=session.count,
            reward=session.reward,
            finished=session.finished,
            age_s=round(now - session.created_at, 3),
        )

    def _forget(self, session: Session) -> None:
        if self._live.get(session.sid) is session:
            del self._live[session.sid]
            self._per_owner[session.owner] -= 1
            if not self._per_owner[session.owner]:
                del self._per_owner[session.owner]

    # time

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                self._sweep_once(self._now())
            except Exception:
                _log.exception("sweep_failed")

    def _sweep_once(self, now: float) -> None:
        limits = self.limits
        for call in list(self.call_limits.orphans):
            if call.orphaned_at is not None and now - call.orphaned_at > limits.client_grace_s:
                self.call_limits.orphans.discard(call)
                if call.stop is not None and not call.detached:
                    call.stop()
        idle_before, born_before = now - limits.idle_limit_s, now - limits.lifetime_limit_s
        for session in list(self._live.values()):
            if session.closing is not None:
                continue
            if session.calls is not None:
                session.calls.expire(now)
            if session.busy:  # nothing is taken from under a running call, which has a limit of its own
                continue
            if session.touched_at < idle_before:
                self._expire(session, f"Session expired: idle for {limits.idle_limit_s:g} s")
            elif session.created_at < born_before:
                self._expire(session, f"Session expired: older than {limits.lifetime_limit_s:g} s")
        self._gone.expire(now)

    def _expire(self, session: Session, reason: str) -> None:
        self._spawn(self.close(session, reason))

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # who waits for the task has it too

    # the end

    def refuse_new(self) -> None:
        """Take no new sessions from now on (L6)."""
        self._stopping = True

    def hurry(self) -> None:
        """Wait for no more calls: whoever stops the server has asked twice."""
        self._hurried = True

    async def drain(self, grace_s: float) -> None:
        """Let running calls finish within the grace time; says on the log what is waited for."""
        end = self._now() + grace_s
        while (running := self.call_limits.in_flight) and self._now() < end and not self._hurried:
            _log.info("waiting_for_calls", running=running, seconds_left=round(end - self._now(), 1))
            pause = min(1.0, max(0.0, end - self._now()))
            waits = [asyncio.ensure_future(call.wait(Delay(pause))) for call in self._running()]
            if not waits:
                await asyncio.sleep(0.05)
                continue
            await asyncio.wait(waits)

    def _running(self) -> Iterable[Call]:
        for session in self._live.values():
            if session.calls is not None:
                yield from session.calls.unfinished()

    async def close_all(self, reason: str) -> None:
        """Tear every session down, and stop the sweep."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        if self._live:
            _log.info("closing_sessions", sessions=len(self._live))
        closing = [self.close(session, reason) for session in list(self._live.values())]
        await asyncio.gather(*closing, return_exceptions=True)
