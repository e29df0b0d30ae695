"""The table of live sessions: opening, finding and ending them, with bounds in number and time.

A session that leaves the table gets a tombstone with the reason, unless it never opened or is suspended.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orsay_protocol.faults import FaultClass
from orsay_protocol.redact import redactor

from ..errors import (
    Faulted,
    Overloaded,
    Refused,
    SessionConflict,
    SessionGone,
    ShuttingDown,
    Starting,
    UnknownSession,
)
from ..faults import FaultLog
from ..logs import get_logger
from ..runtimes.base import ClosesByCallback, EnvironmentInfo, Handle, OpenSession, Runtime
from .call import Call, task_ids
from .calls import CallTotals
from .limits import CallLimits, SessionLimits
from .meter import Meter
from .opener import Opener, deleted_early, fail
from .recent_secrets import RecentSecrets
from .recorder import task_name
from .session import SANDBOX_IS_GONE, Session, SessionKey
from .shared import Shared
from .timers import Delay, joined
from .tombstones import EndReason, Tombstone, Tombstones, sentence

if TYPE_CHECKING:
    from ..journal.read.open_sessions import PastSession
    from .recorder import Recorder
    from .recovery import Recovery

__all__ = ["Sessions"]

_log = get_logger(__name__)
_SWEEP_S = 1.0


class Sessions:
    """All live sessions of a server, and tombstones of those that ended."""

    def __init__(
        self,
        runtime: Runtime,
        limits: SessionLimits,
        call_limits: CallLimits,
        faults: FaultLog,
        *,
        log_calls: bool = False,
        meter: Meter | None = None,
        recorder: Recorder | None = None,
        recovery: Recovery | None = None,
        needs_journal: bool = False,
        now: Callable[[], float] = time.monotonic,  # finer than the clock of the loop
    ) -> None:
        self.runtime = runtime
        self.meter = meter or Meter()
        self._recorder = recorder
        self._recovery = recovery
        self.limits = limits
        self.totals = CallTotals(call_limits)
        self.faults = faults
        self.secrets = RecentSecrets()
        self._live: dict[SessionKey, Session] = {}
        self._tombstones = Tombstones(memory_s=limits.gone_memory_s)
        self._per_owner: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.stopping = False
        self._hurried = False
        self._now = now
        self._sweeper: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._shared = Shared(
            limits=limits,
            totals=self.totals,
            faults=faults,
            task_ids=task_ids(),
            now=self._now,
            on_lost=self._mark_lost,
            evict=self._evict_results,
            log_calls=log_calls,
            meter=self.meter,
            needs_journal=needs_journal,
        )
        self._opener = Opener(runtime, self._shared, self._spawn, self._remove)

    def __len__(self) -> int:
        return len(self._live)

    def use(self, limits: SessionLimits, *, log_calls: bool) -> None:
        """Replace the limits; tombstones are kept for as long as before."""
        self.limits = self._shared.limits = limits
        self._shared.log_calls = log_calls

    def start(self) -> None:
        """Start to expire sessions, and to read those from before a restart from the journal."""
        if self._recovery is not None:
            memory_s = self.limits.gone_memory_s
            loading = self._recovery.load(self._leave_tombstone, self._live, memory_s=memory_s)
            self._reading = asyncio.get_running_loop().create_task(loading)
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    # opening

    async def create(
        self,
        sid: str,
        owner: str,
        info: EnvironmentInfo,
        request: OpenSession,
        client: str = "",
    ) -> Session:
        """Open a session, or join the one that the same request opened (L1).

        Returns when the constructor has run and the journal has the session. ``client`` is the user
        agent. Raises SessionConflict, Overloaded, ShuttingDown, and what ``Runtime.open`` raises.
        """
        session = self.begin_create(sid, owner, info, request, client)
        if session.opening is not None:
            await joined(session.opening)
        session.touch()
        return session

    def begin_create(
        self, sid: str, owner: str, info: EnvironmentInfo, request: OpenSession, client: str = ""
    ) -> Session:
        """The part of ``create`` before the wait for ``Session.opening``, which may be None."""
        body = request.model_dump_json(exclude={"run", "trace", "traceparent"}).encode()
        digest = hashlib.blake2b(body, digest_size=16).digest()
        key = owner, sid
        session = self._live.get(key)
        if session is None and self._recovery is not None and self._recovery.known:
            past = self._recovery.find(key)
            session = None if past is None else self._rebuild(self._recovery, past)
        if session is None:
            self._admit(owner)
            session = self._new(sid, owner, info, digest, request, client)
            self._add(session, self._opener.start(session, request))
        elif session.digest != digest:
            raise SessionConflict(f"Session already exists: {sid!r} was created with another request")
        elif session.state in ("closing", "closed"):
            raise SessionGone("Session deleted")
        return session

    def _admit(self, owner: str) -> None:
        if self.stopping:
            raise ShuttingDown("the server is shutting down and takes no new sessions")
        limits = self.limits
        if len(self._live) >= limits.max_sessions:
            raise Overloaded(f"server at maximum capacity: {limits.max_sessions} sessions")
        if (
            limits.max_sessions_per_owner is not None
            and self._per_owner[owner] >= limits.max_sessions_per_owner
        ):
            raise Overloaded(
                f"this key is at maximum capacity: {limits.max_sessions_per_owner} sessions;"
                " ORSAY_MAX_SESSIONS_PER_KEY bounds it"
            )

    def _new(
        self, sid: str, owner: str, info: EnvironmentInfo, digest: bytes, request: OpenSession, client: str
    ) -> Session:
        hide = redactor(request.secrets.values())
        self.secrets.remember(owner, hide)
        task = task_name(request.split, request.index, request.task_spec, hide)
        record = None
        if self._recorder is not None:
            record = self._recorder.begin(
                sid,
                owner,
                info.name,
                request,
                digest,
                hide,
                task=task,
                client=client,
                replayable=info.replayable,
                hash_seed=info.hash_seed,
            )
        return Session(
            self._shared,
            sid,
            owner,
            info,
            digest,
            task=task,
            run=request.run,
            trace=request.trace,
            hide=hide,
            record=record,
        )

    def _add(self, session: Session, opening: asyncio.Future[None]) -> None:
        """Add the session to the table; it is open when ``opening`` is done."""
        self._live[session.key] = session
        self._per_owner[session.owner] += 1
        session.begin_opening(opening)

    def _remove(self, session: Session) -> None:
        if self._live.get(session.key) is session:
            del self._live[session.key]
            self._per_owner[session.owner] -= 1
            if not self._per_owner[session.owner]:
                del self._per_owner[session.owner]

    # sessions from before a restart

    def _past(self, sid: str, owner: str) -> PastSession | None:
        """The owner's session of that id, if a killed server left it. Raises Starting until that is known."""
        if self._recovery is None or self._tombstones.find(sid, owner, self._now()) is not None:
            return None
        return self._recovery.find((owner, sid))

    def _rebuild(self, recovery: Recovery, past: PastSession) -> Session:
        """Start to rebuild the session. Raises Starting during shutdown: the next server rebuilds it."""
        if self.stopping:
            raise Starting("the server is shutting down; the session continues after a restart")
        info, digest = EnvironmentInfo.unknown(past.environment), bytes.fromhex(past.digest)
        session = Session(self._shared, past.sid, past.owner, info, digest, record=recovery.resume(past))
        self._add(session, self._spawn(self._rebuild_now(recovery, session, past)))
        return session

    async def _rebuild_now(self, recovery: Recovery, session: Session, past: PastSession) -> None:
        try:
            await recovery.rebuild(session, past)
        except asyncio.CancelledError:
            if session.state == "closing":
                raise SessionGone("Session deleted while it was built again") from None
            raise
        except Starting as error:
            self._remove(session)
            recovery.put_back(past)
            session.suspend(error)
            raise
        except BaseException as error:
            gone = error if isinstance(error, SessionGone) else SessionGone(f"server restarted: {error}")
            fault = gone.fault or "session_gone"
            self._end(session, gone, "restart" if fault == "session_gone" else fault)
            raise gone from error

    async def _end_past(self, recovery: Recovery, past: PastSession, reason: str) -> None:
        await recovery.end(past, reason)
        self._leave_tombstone(past.sid, past.owner, reason)

    def _leave_tombstone(self, sid: str, owner: str, reason: str, fault: FaultClass = "session_gone") -> None:
        self._tombstones.add(sid, owner, Tombstone(reason, fault), self._now())

    # looking up

    def get(self, sid: str, owner: str) -> Session:
        """The live session, touched. Raises SessionGone or UnknownSession (L4); Starting after a restart."""
        session = self._live.get((owner, sid))
        if session is None and self._recovery is not None:
            past = self._past(sid, owner)
            session = None if past is None else self._rebuild(self._recovery, past)
        if session is None:
            raise self._missing(sid, owner)
        session.touch()
        return session

    def _missing(self, sid: str, owner: str) -> Refused:
        tombstone = self._tombstones.find(sid, owner, self._now())
        if tombstone is None:
            return UnknownSession("Active environment not found: no session of this id; create one first")
        gone = SessionGone(tombstone.reason)
        gone.fault = tombstone.fault
        return gone

    # results

    def _evict_results(self, keep: Call) -> None:
        """Evict the oldest results, to three quarters of the bound, since this visits every result.

        An owner within an equal share of that loses none (max-min fairness).
        """
        stored = [
            (call.published_at, number, calls, call)
            for number, calls in enumerate(s.calls for s in self._live.values() if s.calls is not None)
            for call in calls.stored
            if call is not keep
        ]
        stored.sort(key=lambda each: each[:2])
        target = 0.75 * self.totals.limits.bytes_in_all
        owners = self.totals.owners_with_results
        for _, _, calls, call in stored:
            if self.totals.stored_bytes <= target:
                break
            if calls.share.stored_bytes > target / owners:
                calls.evict(call)

    # closing

    async def delete(self, sid: str, owner: str) -> Faulted | None:
        """End the session, if it exists, and wait for its teardown (L2), whose fault is returned.

        Waits a bounded time for a restarted server to read its journal; then raises Starting.
        """
        if self._reading is not None and not self._reading.done() and (owner, sid) not in self._live:
            await asyncio.wait([self._reading], timeout=self.limits.load_wait_s)
        session = self._live.get((owner, sid))
        if session is None and self._recovery is not None:
            past = self._past(sid, owner)
            if past is not None:
                await self._end_past(self._recovery, past, sentence("deleted"))
        if session is None:
            return None
        fault = await self.close(session, "deleted")
        if session.end_durable is not None:  # else a restarted server would find it open
            await joined(session.end_durable)
        return fault

    async def close(self, session: Session, reason: EndReason, limit_s: float = 0.0) -> Faulted | None:
        """Stop running operations and tear down, once; concurrent callers wait for the same end.

        A failed teardown ends the session too; its fault is logged and returned.
        """
        closing = self.begin_close(session, reason, limit_s)
        return None if closing is None else await joined(closing)

    def begin_close(
        self, session: Session, reason: EndReason, limit_s: float = 0.0
    ) -> asyncio.Future[Faulted | None] | None:
        """The part of ``close`` before its wait; None for a session that is not in the table any more."""
        if session.closing is not None:
            return session.closing
        if self._live.get(session.key) is not session:
            return None
        gone = SessionGone(sentence(reason, limit_s))
        handle, opening = session.handle, session.opening
        awaited = isinstance(opening, asyncio.Task)
        if opening is not None and not awaited and not opening.done():
            fail(opening, deleted_early())
        if awaited or not isinstance(handle, ClosesByCallback):
            task = self._spawn(self._close(session, gone, reason))
            session.begin_closing(gone, task)
            return task
        closing: asyncio.Future[Faulted | None] = asyncio.get_running_loop().create_future()
        session.begin_closing(gone, closing)
        handle.start_close(partial(self._torn_down, session, gone, reason, closing))
        return closing

    def _torn_down(
        self,
        session: Session,
        gone: SessionGone,
        reason: EndReason,
        closing: asyncio.Future[Faulted | None],
        _: object,
        error: Faulted | Refused | None,
    ) -> None:
        fault = error if isinstance(error, Faulted) else None  # refused: the runtime is gone
        try:
            if fault is not None:
                session.report(fault, during="teardown")
        finally:
            self._end(session, gone, reason)
            closing.set_result(fault)

    async def _close(self, session: Session, gone: SessionGone, reason: EndReason) -> Faulted | None:
        try:
            opening = session.opening
            if opening is not None:
                opening.cancel()
                await asyncio.wait([opening])
            return None if session.handle is None else await self._tear_down(session, session.handle)
        finally:
            self._end(session, gone, reason)

    async def _tear_down(self, session: Session, handle: Handle) -> Faulted | None:
        """Close the environment in its runtime; a fault is logged and returned."""
        try:
            await handle.close()
        except Faulted as fault:
            session.report(fault, during="teardown")
            return fault
        except Refused:
            pass  # the runtime is gone; there is nothing left to tear down
        return None

    def _mark_lost(self, session: Session, fault: FaultClass, reason: str) -> None:
        """The runtime lost the session (I4): end it, unless it may be rebuilt."""
        if self._live.get(session.key) is not session or session.closing is not None:
            return
        if self._recovery is not None and fault == "worker_lost" and session.rebuildable:
            self._suspend(self._recovery, session, reason, fault)
            return
        gone = SessionGone(f"{reason}; {SANDBOX_IS_GONE}" if session.needs_sandbox else reason)
        gone.fault = fault
        self._end(session, gone, fault)

    def _suspend(self, recovery: Recovery, session: Session, reason: str, fault: FaultClass) -> None:
        """Remove the session from its runtime; it is rebuilt at the next request for it."""
        recovery.suspend(session, reason, fault)
        self._remove(session)
        session.suspend(Starting(f"{reason}; the session is built again"))
        _log.info("session_suspended", **session.context, reason=reason, calls=session.call_count)

    def _end(self, session: Session, gone: SessionGone, label: str) -> None:
        """End the session, remove it from the table, and leave a tombstone."""
        self._remove(session)
        self._leave_tombstone(session.sid, session.owner, gone.detail, gone.fault or "session_gone")
        session.end(gone, label)

    # expiry

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                self.expire()
            except Exception:
                _log.exception("sweep_failed")

    def expire(self) -> None:
        """End idle and old sessions, stop abandoned calls, remove old results and tombstones."""
        now, limits = self._now(), self.limits
        self.totals.stop_abandoned(before=now - limits.client_grace_s)
        idle_before, born_before = now - limits.idle_limit_s, now - limits.lifetime_limit_s
        for session in list(self._live.values()):
            if session.closing is not None:
                continue
            if session.calls is not None:
                session.calls.expire(now)
            if session.busy:  # a running call keeps its session: it has a time limit of its own
                continue
            if session.touched_at < idle_before:
                self._spawn(self.close(session, "idle", limits.idle_limit_s))
            elif session.created_at < born_before:
                self._spawn(self.close(session, "lifetime", limits.lifetime_limit_s))
        self._tombstones.expire(now)
        if self._recovery is not None:
            reason = f"{sentence('idle', limits.idle_limit_s)} after a restart"
            for past in self._recovery.take_expired(limits.idle_limit_s):
                self._spawn(self._end_past(self._recovery, past, reason))

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: the task's awaiter gets it too

    # shutdown

    def refuse_new(self) -> None:
        """Take no new sessions from now on (L6)."""
        self.stopping = True

    def hurry(self) -> None:
        """End the wait for calls: the server was asked to stop a second time."""
        self._hurried = True

    async def drain(self, grace_s: float) -> None:
        """Wait for running calls within the grace time; the log has their number."""
        end = self._now() + grace_s
        while (running := self.totals.in_flight) and self._now() < end and not self._hurried:
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
                yield from session.calls.unpublished

    async def close_all(self) -> None:
        """Stop expiry, and tear down or suspend every session."""
        for task in (self._sweeper, self._reading):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._live:
            _log.info("closing_sessions", sessions=len(self._live))
        closing = [self._close_or_suspend(session) for session in list(self._live.values())]
        await asyncio.gather(*closing, return_exceptions=True)

    async def _close_or_suspend(self, session: Session) -> None:
        """Close the session at the end of the server, unless the next server can rebuild it."""
        handle = session.handle
        if self._recovery is None or handle is None or not session.rebuildable:
            await self.close(session, "shutdown")
            return
        self._suspend(self._recovery, session, sentence("shutdown"), "shutdown")
        await self._tear_down(session, handle)

    # observation

    @property
    def live(self) -> Mapping[SessionKey, Session]:
        """Live sessions by owner and id, the oldest first; a view, for reading only."""
        return MappingProxyType(self._live)
