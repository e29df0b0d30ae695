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
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orsay_protocol.faults import FaultClass
from orsay_protocol.redact import redactor

from ..errors import (
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
from ..faults import FaultLog
from ..logs import get_logger
from ..runtimes.base import EnvironmentInfo, Handle, OpenSession, Runtime
from .calls import Call, CallLimits, TaskIds
from .meter import Meter
from .recorder import task_name
from .session import Place, Session, SessionLimits, Shared, State
from .timers import Delay
from .tombstones import EndReason, Tombstone, Tombstones, sentence

if TYPE_CHECKING:
    from ..journal.read.open_sessions import Ended, PastSession
    from .recorder import Recorder
    from .recovery import Recovery

__all__ = ["Session", "SessionLimits", "Sessions"]

_log = get_logger(__name__)
_SWEEP_S = 1.0


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
        meter: Meter | None = None,
        recorder: Recorder | None = None,
        recovery: Recovery | None = None,
        needs_journal: bool = False,
    ) -> None:
        self.runtime = runtime
        self.meter = meter or Meter()
        self._recorder = recorder
        self._recovery = recovery
        self.limits = limits
        self.call_limits = call_limits
        self.faults = faults
        self._live: dict[Place, Session] = {}
        self._gone = Tombstones(memory_s=limits.gone_memory_s)
        self._per_owner: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.stopping = False
        self._hurried = False
        self._now = time.monotonic  # finer than the clock of the loop
        self._sweeper: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._shared = Shared(
            limits=limits,
            call_limits=call_limits,
            faults=faults,
            task_ids=TaskIds(),
            now=self._now,
            lose=self.lose,
            shed=self._shed,
            log_calls=log_calls,
            meter=self.meter,
            needs_journal=needs_journal,
        )

    def __len__(self) -> int:
        return len(self._live)

    def use(self, limits: SessionLimits, *, log_calls: bool) -> None:
        """Other limits from now on; how long tombstones are kept stays as it was."""
        self.limits = self._shared.limits = limits
        self._shared.log_calls = log_calls

    def start(self) -> None:
        """Begin to look after sessions; those of before a restart are known once the journal was read."""
        if self._recovery is not None:
            memory_s = self.limits.gone_memory_s
            loading = self._recovery.load(self._bury_past, self._live, memory_s=memory_s)
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

        Returns when the constructor has run and the journal knows of the session. ``client`` is what the
        client says of itself. Raises SessionConflict, Overloaded, ShuttingDown, and what ``Runtime.open``
        raises.
        """
        body = request.model_dump_json(exclude={"run", "trace", "traceparent"}).encode()
        digest = hashlib.blake2b(body, digest_size=16).digest()
        place = owner, sid
        session = self._live.get(place)
        if session is None and self._recovery is not None and self._recovery.known:
            past = self._recovery.find(place)
            session = None if past is None else self._revive(self._recovery, past)
        if session is None:
            self._admit(owner)
            hide = redactor(request.secrets.values())
            session = Session(self._shared, sid, owner, info, digest, request.run, request.trace, hide)
            session.task = task_name(request.split, request.index, request.task_spec, session.hide)
            self._live[place] = session
            self._per_owner[owner] += 1
            session.opened = self._spawn(self._open(session, request, client))
        elif session.digest != digest:
            raise SessionConflict(f"Session already exists: {sid!r} was created with another request")
        elif session.state in ("closing", "closed"):
            raise SessionGone("Session deleted")
        if session.opened is not None:
            await asyncio.shield(session.opened)
        session.touched_at = self._now()
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

    async def _open(self, session: Session, request: OpenSession, client: str) -> None:
        if self._recorder is not None:
            session.record = self._recorder.begin(
                session.sid,
                session.owner,
                session.info.name,
                request,
                session.digest,
                task=session.task,
                client=client,
                replayable=session.info.replayable,
                hash_seed=session.info.hash_seed,
            )
        try:
            session.handle = handle = await self.runtime.open(request, session)
            if (
                session.record is not None
                and not await session.record.opened()
                and self._shared.needs_journal
            ):
                session.handle = None
                await handle.close()
                raise Overloaded("the journal takes no sessions, and this server plays none without it")
        except asyncio.CancelledError:
            if session.state == "closing":
                raise SessionGone("Session deleted while it was constructed") from None
            raise
        except BaseException as error:
            if isinstance(error, Faulted | Refused):
                error.redact(session.hide)
            if session.state != "closing":
                if isinstance(error, Faulted):
                    session.report(error)
                session.error = error if isinstance(error, Faulted | Refused) else None
                self._forget(session)
                session.enter("closed")
                self._record_failure(session, error)
                if isinstance(error, Faulted) and error.fault == "worker_lost":
                    raise OpeningLost(error.message) from error
            raise
        finally:
            session.opened = None
        if session.state == "opening":
            session.state = "starting"
        self.meter.session_opened(session.info.name)

    def _record_failure(self, session: Session, error: BaseException) -> None:
        """The journal keeps constructors that failed; of what was refused only that it is not there."""
        record = session.record
        if record is None:
            return
        if isinstance(error, Faulted):
            if record.opening is not None:
                record.opened()
            record.ended(error.message, error.fault, 0, None, finished=False)
        elif isinstance(error, Refused):
            record.ended(error.detail, error.fault, 0, None, finished=False)

    # sessions of before a restart

    def _past(self, sid: str, owner: str) -> PastSession | None:
        """What a killed server left of the owner's session of that id. Raises Starting while nobody knows."""
        if self._recovery is None or self._gone.find(sid, owner, self._now()) is not None:
            return None
        return self._recovery.find((owner, sid))

    def _revive(self, recovery: Recovery, past: PastSession) -> Session:
        """The session, while it is built again. Raises Starting when only the next server does that."""
        if self.stopping:
            raise Starting("the server is shutting down; the session goes on once it is started again")
        info = EnvironmentInfo.unknown(past.environment)
        session = Session(self._shared, past.sid, past.owner, info, bytes.fromhex(past.digest))
        session.record = recovery.resume(past)
        self._live[past.place] = session
        self._per_owner[past.owner] += 1
        session.opened = self._spawn(self._rebuild(recovery, session, past))
        return session

    async def _rebuild(self, recovery: Recovery, session: Session, past: PastSession) -> None:
        try:
            await recovery.rebuild(session, past)
        except asyncio.CancelledError:
            if session.state == "closing":
                raise SessionGone("Session deleted while it was built again") from None
            raise
        except Starting as error:
            self._forget(session)
            recovery.put_back(past)
            session.error = error
            session.enter("failed")
            raise
        except BaseException as error:
            gone = error if isinstance(error, SessionGone) else SessionGone(f"server restarted: {error}")
            session.error = gone
            fault = gone.fault or "session_gone"
            self._bury(session, gone.detail, fault, "restart" if fault == "session_gone" else fault)
            raise gone from error
        finally:
            session.opened = None
        session.enter("ready")

    def _bury_past(self, ended: Ended) -> None:
        self._gone.add(ended.sid, ended.owner, Tombstone(ended.reason, "session_gone"), self._now())

    async def _end_past(self, recovery: Recovery, past: PastSession, reason: str) -> None:
        await recovery.end(past, reason)
        self._gone.add(past.sid, past.owner, Tombstone(reason, "session_gone"), self._now())

    # looking up

    def get(self, sid: str, owner: str) -> Session:
        """The live session, touched. Raises SessionGone or UnknownSession (L4); Starting after a restart."""
        session = self._live.get((owner, sid))
        if session is None and self._recovery is not None:
            past = self._past(sid, owner)
            session = None if past is None else self._revive(self._recovery, past)
        if session is None:
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

    def _shed(self, keep: Call) -> None:
        """Drop the oldest results, some more than needed: this looks at every one.

        Each owner keeps as much as all would have if they shared alike.
        """
        stored = [
            (call.ended_at, number, calls, call)
            for number, calls in enumerate(s.calls for s in self._live.values() if s.calls is not None)
            for call in calls.finished()
            if call is not keep
        ]
        stored.sort(key=lambda each: each[:2])
        limits = self.call_limits
        target = 0.75 * limits.bytes_in_all
        owners = sum(share.stored_bytes > 0 for share in limits.shares.values())
        for _, _, calls, call in stored:
            if limits.stored_bytes <= target:
                break
            if calls.share.stored_bytes > target / owners:
                calls.forget(call)

    def orphan(self, call: Call) -> None:
        """Nobody reads the call any more; it is stopped unless somebody comes back in time (L5)."""
        self.call_limits.orphans.add(call)

    # closing

    async def delete(self, sid: str, owner: str) -> Faulted | None:
        """End the session, if there is one, and wait until it is torn down (L2); tells how that failed.

        Raises Starting while nobody knows whether there is one, soon after a restart.
        """
        session = self._live.get((owner, sid))
        if session is None and self._recovery is not None:
            past = self._past(sid, owner)
            if past is not None:
                await self._end_past(self._recovery, past, sentence("deleted"))
        if session is None:
            return None
        fault = await self.close(session, "deleted")
        if session.end_written is not None:  # else a server started again would take it for left open
            await asyncio.shield(session.end_written)
        return fault

    async def close(self, session: Session, reason: EndReason, limit_s: float = 0.0) -> Faulted | None:
        """Stop what runs and tear down, once; everybody who asks waits for the same end.

        A teardown that fails ends the session all the same; the fault is in the log, and returned.
        """
        if session.closing is None:
            text = sentence(reason, limit_s)
            session.error = SessionGone(text)
            session.enter("closing")
            session.closing = self._spawn(self._close(session, reason, text))
        return await asyncio.shield(session.closing)

    async def _close(self, session: Session, reason: EndReason, text: str) -> Faulted | None:
        try:
            opened = session.opened
            if opened is not None:
                opened.cancel()
                await asyncio.wait([opened])
            return None if session.handle is None else await self._tear_down(session, session.handle)
        finally:
            self._bury(session, text, "session_gone", reason)

    async def _tear_down(self, session: Session, handle: Handle) -> Faulted | None:
        """Tell the runtime that the session is over; a fault is in the log, and returned."""
        try:
            await handle.close()
        except Faulted as fault:
            session.report(fault, during="teardown")
            return fault
        except Refused:
            pass  # the runtime is gone; there is nothing left to tear down
        return None

    def lose(self, session: Session, fault: FaultClass, reason: str) -> None:
        """The runtime lost the session (I4)."""
        if self._live.get(session.place) is not session or session.closing is not None:
            return
        if self._recovery is not None and fault == "worker_lost" and session.can_go_on:
            self._suspend(self._recovery, session, reason, fault)
            return
        session.error = SessionGone(reason)
        session.error.fault = fault
        self._bury(session, reason, fault, fault)

    def _suspend(self, recovery: Recovery, session: Session, reason: str, fault: FaultClass) -> None:
        """It is over here, but goes on when somebody next asks for it."""
        recovery.suspend(session, reason, fault)
        session.error = Starting(f"{reason}; the session is built again")
        self._let_go(session, "failed")
        _log.info("session_suspended", **session.context, reason=reason, calls=session.count)

    def _let_go(self, session: Session, state: State) -> None:
        self._forget(session)
        session.enter(state)
        session.handle = None
        if session.calls is not None:
            session.calls.clear()
            session.calls = None

    def _bury(self, session: Session, reason: str, fault: FaultClass, label: str) -> None:
        now = self._now()
        self._let_go(session, "closed")
        self._gone.add(session.sid, session.owner, Tombstone(reason, fault), now)
        if session.record is not None:
            ended_by = None if fault == "session_gone" else fault
            session.end_written = session.record.ended(
                reason, ended_by, session.count, session.reward, finished=session.finished
            )
        self.meter.session_ended(session.info.name, label, now - session.created_at)
        _log.info(
            "session_ended",
            **session.context,
            reason=reason,
            calls=session.count,
            reward=session.reward,
            finished=session.finished,
            age_s=round(now - session.created_at, 3),
        )

    def _forget(self, session: Session) -> None:
        if self._live.get(session.place) is session:
            del self._live[session.place]
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
                self._spawn(self.close(session, "idle", limits.idle_limit_s))
            elif session.created_at < born_before:
                self._spawn(self.close(session, "lifetime", limits.lifetime_limit_s))
        self._gone.expire(now)
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
            task.exception()  # who waits for the task has it too

    # the end

    def refuse_new(self) -> None:
        """Take no new sessions from now on (L6)."""
        self.stopping = True

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

    async def close_all(self) -> None:
        """Tear every session down, and stop the sweep."""
        for task in (self._sweeper, self._reading):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._live:
            _log.info("closing_sessions", sessions=len(self._live))
        closing = [self._leave(session) for session in list(self._live.values())]
        await asyncio.gather(*closing, return_exceptions=True)

    async def _leave(self, session: Session) -> None:
        """The server ends: the session too, unless the next one on the same journal can build it again."""
        handle = session.handle
        if self._recovery is None or handle is None or not session.can_go_on:
            await self.close(session, "shutdown")
            return
        self._suspend(self._recovery, session, sentence("shutdown"), "shutdown")
        await self._tear_down(session, handle)

    # looking on

    @property
    def live(self) -> Mapping[Place, Session]:
        """The sessions that are there, by owner and id, the oldest first; a view, for reading only."""
        return MappingProxyType(self._live)
