"""Recovery of sessions whose server or worker died, by deterministic replay of their journal (L7).

Sessions that a server left open are read from the journal when the next one starts; those of a dead worker
are suspended by their own server. A session of an environment that is declared ``replayable`` is rebuilt at
the next request for it: its prompt is requested and its calls are made again, in an order that leads to the
same state (``replay_order``), and each answer must equal the recorded one. Unfinished calls are started again
under their old task ids. All other sessions end.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from orsay_protocol.faults import FaultClass
from orsay_protocol.sse import encode_result
from pydantic_core import from_json
from sqlalchemy import Connection

from ..errors import Faulted, JournalDown, Overloaded, Refused, SessionGone, ShuttingDown, Starting
from ..journal.ids import new_id
from ..journal.read.open_sessions import (
    PastAsk,
    PastCall,
    PastContent,
    PastSession,
    ended_after,
    ending,
    left_open,
    read_content,
)
from ..journal.values import result_of
from ..logs import get_logger
from ..runtimes.base import EnvironmentInfo, Handle, OpenSession, Operation, Runtime, settle
from ..runtimes.outcome import Outcome, episode_finished
from .call import Call
from .recorder import Record, Recorder, digest_of, task_name
from .replay_order import Disorder, Step, steps_of
from .session import REPEATABLE, SANDBOX_IS_GONE, Session, SessionKey

__all__ = ["Recovery"]

_log = get_logger(__name__)
_T = TypeVar("_T")
OnEnded: TypeAlias = Callable[[str, str, str], None]
"""Callback with ``(sid, owner, reason)`` of an ended session."""
_READ_AGAIN_S = 2.0
_READ_LIMIT_S = 30.0
_REMEMBERED = 10_000  # tombstones of sessions that ended before the restart
_MOST_DEATHS = 3  # lost workers while they rebuilt the same session
_PASSING = frozenset({"worker_lost", "overloaded", "shutdown"})


class _Diverged(Exception):
    """The replay of a session differs from its record."""


class Recovery:
    """Suspended sessions, rebuilt at the next request for them. ``known``: the journal was read."""

    def __init__(self, recorder: Recorder, runtime: Runtime) -> None:
        self._recorder = recorder
        self._runtime = runtime
        self._waiting: dict[SessionKey, tuple[float, PastSession]] = {}  # since when, in seconds since 1970
        self._deaths: Counter[int] = Counter()
        self._begun = new_id()
        self.known = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def load(self, on_ended: OnEnded, live: Container[SessionKey], *, memory_s: float) -> None:
        """Read the sessions left open, and end those that cannot be rebuilt.

        ``on_ended`` is called for these, and for recently ended ones.
        Waits a bounded time for a journal that is down, since clients may still play sessions in it.
        """
        try:
            await self._load(on_ended, live, memory_s)
        except JournalDown as exc:
            _log.error("journal_not_read", reason=str(exc), consequence="no earlier session is recovered")
        except Exception:
            _log.exception("journal_not_read", consequence="no earlier session is recovered")
        self.known = True

    async def _load(self, on_ended: OnEnded, live: Container[SessionKey], memory_s: float) -> None:
        server = self._recorder.server
        after = time.time() - memory_s
        ended = await self._read_patiently(partial(ended_after, server=server, time=after, limit=_REMEMBERED))
        found = await self._read_patiently(partial(left_open, server=server))
        for each in ended:
            on_ended(each.sid, each.owner, each.reason)
        old = [past for past in found if past.id < self._begun]  # later ones belong to this process
        for past in old:
            created_anew = past.key in live
            reason = past.lost if created_anew else _why_not(past)
            if reason is None:
                self.put_back(past)
                continue
            await self.end(past, reason, lost=True)
            if not created_anew:
                on_ended(past.sid, past.owner, reason)
        if old:
            kept = len(self._waiting)
            _log.info("sessions_left_open", kept=kept, ended=len(old) - kept)

    async def _read_patiently(self, work: Callable[[Connection], _T]) -> _T:
        give_up_at = time.monotonic() + _READ_LIMIT_S
        while True:
            try:
                return await self._read(work)
            except JournalDown as exc:
                if time.monotonic() > give_up_at:
                    raise
                _log.warning(
                    "journal_not_read", reason=str(exc), hint="earlier sessions resume once it answers"
                )
                await asyncio.sleep(_READ_AGAIN_S)

    def find(self, key: SessionKey) -> PastSession | None:
        """A session that may be rebuilt. Raises Starting while that is not known."""
        if not self.known:
            raise Starting("the server was started again and still reads its journal")
        _, past = self._waiting.get(key, (0.0, None))
        return past

    def resume(self, past: PastSession) -> Record:
        """Remove a session that is rebuilt now; returns its record."""
        self._waiting.pop(past.key, None)
        return self._recorder.resume(past.id, used_sandbox=past.used_sandbox)

    def put_back(self, past: PastSession) -> None:
        """Add a session that is rebuilt at the next request."""
        self._waiting[past.key] = time.time(), past

    def suspend(self, session: Session, lost: str, lost_by: FaultClass) -> None:
        """Add a session that leaves its runtime, to be rebuilt at the next request."""
        assert session.record is not None
        past = PastSession(
            session.record.id,
            session.sid,
            session.owner,
            session.info.name,
            session.digest.hex(),
            replayable=True,
            secrets=False,
            hash_seed=session.info.hash_seed,
            used_sandbox=session.record.used_sandbox,
            lost=lost,
            lost_by=lost_by,
            results=session.record.number,
            ends=session.record.clock,
        )
        self.put_back(past)

    async def end(self, past: PastSession, reason: str, *, lost: bool = False) -> None:
        """Write the end of a session that is not rebuilt; ``lost``: because it cannot be."""
        self._waiting.pop(past.key, None)
        del self._deaths[past.id]
        lost_by = "session_gone" if lost else None
        with contextlib.suppress(JournalDown):
            row = await self._read(
                partial(ending, session=past.id, ended_at=time.time(), reason=reason, lost_by=lost_by)
            )
            self._recorder.writer.add(row)

    def take_expired(self, idle_limit_s: float) -> list[PastSession]:
        """Remove and return the sessions without a request for ``idle_limit_s``."""
        before = time.time() - idle_limit_s
        expired = [past for since, past in self._waiting.values() if since < before]
        for past in expired:
            del self._waiting[past.key]
        return expired

    async def rebuild(self, session: Session, past: PastSession) -> None:
        """Bring ``session`` to the recorded state, and make it ready.

        Raises SessionGone if that is impossible, and Starting if it may be possible later.
        """
        try:
            content = await self._read(partial(read_content, session=past.id))
            _check_whole(content, past)
            request = OpenSession.model_validate_json(content.request)
            info = self._environment(request.key)
            if not info.replayable:
                raise _Diverged(f"the environment {info.name!r} is not declared replayable any more")
            _check_hash_seed(past, info)
            if past.used_sandbox and not info.repeatable_commands:
                raise _Diverged(f"{SANDBOX_IS_GONE} in {info.name!r}")
            steps = steps_of(content, info, own_toolset=request.toolset_name is not None)
            task = task_name(request.split, request.index, request.task_spec)
            session.describe(info, task, request.run, request.trace)
            handle = await self._replay(session, request, content, steps)
        except JournalDown as exc:
            raise Starting(f"the session is in the journal, which cannot be read now: {exc}") from exc
        except (Starting, Overloaded, ShuttingDown) as exc:
            raise Starting(f"the session cannot be built again yet: {exc.detail}") from exc
        except Faulted as exc:
            self._deaths[past.id] += exc.fault == "worker_lost"
            if exc.fault in _PASSING and self._deaths[past.id] < _MOST_DEATHS:
                raise Starting(f"the session cannot be built again yet: {exc.message}") from exc
            raise self._gone(past, f"{exc.fault}: {exc.message}") from exc
        except Refused as exc:
            raise self._gone(past, exc.detail) from exc
        except (_Diverged, Disorder, ValueError) as exc:
            raise self._gone(past, str(exc)) from exc
        del self._deaths[past.id]
        _restore(session, content, handle)
        _log.info("session_rebuilt", **session.context, calls=len(content.done) + len(content.begun))

    def _environment(self, key: str) -> EnvironmentInfo:
        info = next((each for each in self._runtime.environments if each.key == key), None)
        if info is not None:
            return info
        if self._runtime.pending:
            raise Starting(f"the environment {key!r} is still being loaded")
        raise _Diverged(f"the environment {key!r} is not here any more")

    async def _replay(
        self, session: Session, request: OpenSession, content: PastContent, steps: Sequence[Step]
    ) -> Handle:
        listener = _Setup(session)
        handle = await self._runtime.open(request, listener)
        try:
            await listener.over
            placed = {ask.kind for ask in content.asks}
            for kind in content.prompts.keys() - placed:
                await _ask_again(session, handle, PastAsk(0, kind, 0, None, None), content)
            for step in steps:
                if isinstance(step, PastAsk):
                    await _ask_again(session, handle, step, content)
                else:
                    await _repeat(session, handle, step)
        except BaseException:
            with contextlib.suppress(Faulted, Refused):
                await handle.close()
            raise
        listener.replayed = True
        return handle

    def _gone(self, past: PastSession, text: str) -> SessionGone:
        del self._deaths[past.id]
        gone = SessionGone(f"{past.lost}, and the session could not be built again: {text}")
        gone.fault = past.lost_by
        return gone

    async def _read(self, work: Callable[[Connection], _T]) -> _T:
        found: _T = await self._recorder.writer.read(work)
        return found


class _Setup:
    """Listener of a session while it is rebuilt."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.replayed = False

    @property
    def tenant(self) -> Session:
        return self._session

    def setup_ended(self, error: Faulted | Refused | None) -> None:
        if self.over.done():
            return
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)

    def lost(self, fault: FaultClass, reason: str) -> None:
        if self.replayed:
            self._session.lost(fault, reason)
        elif not self.over.done():
            self.over.set_exception(Faulted(fault, reason))


async def _run(session: Session, handle: Handle, operation: Operation, name: str, body: bytes) -> Any:
    """JSON of a hook, or the Outcome of a call. Raises Faulted or Refused."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    chunks = bytearray()
    limit_s = session.limit_s(name)
    handle.start(operation, body, settle(future), limit_s=limit_s, progress=chunks.extend)
    answer = await future
    if chunks and isinstance(answer, Outcome):
        answer.wire = bytes(chunks) + answer.wire
    return answer


async def _ask_again(session: Session, handle: Handle, ask: PastAsk, content: PastContent) -> None:
    """Ask for the prompt, messages or tools again. Raises _Diverged unless the answer is the recorded one."""
    if ask.fault is not None and ask.fault not in REPEATABLE:
        raise _Diverged(f"its {ask.kind} was stopped half-way ({ask.fault})")
    operation = cast(Operation, ask.kind)  # prompts are recorded under the name of their hook
    fault: str | None = None
    answer = b"null"
    try:
        answer = await _run(session, handle, operation, operation, b"")
    except Faulted as exc:
        if exc.fault in _PASSING:
            raise
        fault = exc.fault
    same = fault == ask.fault
    if same and fault is None and ask.digest is not None:
        same = digest_of(answer) == ask.digest
    elif same and fault is None:
        same = from_json(answer) == from_json(content.prompts.get(ask.kind, b"null"))
    if not same:
        raise _Diverged(f"its {ask.kind} differs from the recorded one")


async def _repeat(session: Session, handle: Handle, call: PastCall) -> None:
    """Make a recorded call again. Raises _Diverged unless its result is the recorded one."""
    if call.refused:
        return
    if call.fault is not None and call.fault not in REPEATABLE:
        raise _Diverged(f"its call {call.number} of {call.name!r} was stopped half-way ({call.fault})")
    fault: str | None = None
    outcome = Outcome()
    try:
        outcome = await _run(session, handle, _operation(call), call.name, call.body)
    except Faulted as exc:
        if exc.fault in _PASSING:
            raise
        fault = exc.fault
    if fault != call.fault:
        raise _Diverged(
            f"the outcome of its call {call.number} of {call.name!r} differs from the recorded one"
        )
    if fault is None and from_json(result_of(outcome.wire) or "null") != from_json(call.result or b"null"):
        raise _Diverged(
            f"the result of its call {call.number} of {call.name!r} differs from the recorded one"
        )


def _restore(session: Session, content: PastContent, handle: Handle) -> None:
    """Restore the recorded outcomes and the unfinished calls of a session."""
    if session.record is not None:
        rewards = [past.reward for past in content.done if past.reward is not None]
        session.record.restore(
            tuple(content.prompts),
            number=len(content.done),
            clock=len(content.done) + len(content.asks),
            faults=[past.fault for past in content.done if past.fault is not None],
            reward_sum=sum(rewards) if rewards else None,
        )
    stored = [(_call(session, past), _outcome(past)) for past in content.done if not past.refused]
    session.rebuilt(handle, stored, [_call(session, past, row_id=past.id) for past in content.begun])


def _call(session: Session, past: PastCall, *, row_id: int = 0) -> Call:
    return Call(
        past.task_id,
        _operation(past),
        past.name,
        past.body,
        past.key,
        session.now(),
        detached=past.name in session.info.detached_tools,
        row_id=row_id,
    )


def _operation(past: PastCall) -> Operation:
    return "call" if past.kind == "call" else "score_group"


def _outcome(past: PastCall) -> Outcome:
    if past.fault is not None:
        fault: FaultClass = past.fault  # type: ignore[assignment]  # written by this server
        found = Faulted(fault, past.message or "")
        found.fault_id, found.reported = past.fault_id or "", True
        return Outcome(fault=found)
    if past.discarded:
        return episode_finished(past.name)
    return Outcome(encode_result(past.result or b""), past.reward, past.finished)


def _why_not(past: PastSession) -> str | None:
    if not past.replayable:
        return f"{past.lost}: the environment {past.environment!r} is not declared replayable"
    if past.secrets:
        return f"{past.lost}: the session had secrets, which are not recorded"
    return None


def _check_hash_seed(past: PastSession, info: EnvironmentInfo) -> None:
    """Raises _Diverged for another hash seed: sets would have another order, even if no answer shows it."""
    if past.hash_seed not in (None, info.hash_seed):
        now = "a random one" if info.hash_seed is None else info.hash_seed
        raise _Diverged(
            f"it was played with the hash seed {past.hash_seed}, and {info.name!r} has {now} now:"
            " see 'The order of sets' in docs/recovery.md"
        )


def _check_whole(content: PastContent, past: PastSession) -> None:
    """Raises _Diverged if rows are missing: never written, or removed since."""
    numbers = [call.number for call in content.done]
    results = len(numbers) if past.results is None else past.results
    ends = len(content.done) + len(content.asks)
    if not content.request or past.ends not in (None, ends) or numbers != list(range(1, results + 1)):
        raise _Diverged("the journal lacks some of its rows")
