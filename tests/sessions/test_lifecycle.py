"""Sessions from their creation to their end, on objects."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import orsay
import pytest
from orsay.errors import (
    Faulted,
    Overloaded,
    SessionConflict,
    SessionGone,
    ShuttingDown,
    Starting,
    UnknownSession,
)
from orsay.sessions.lifecycle import Lifecycle, State
from orsay.sessions.meter import Meter
from orsay.sessions.registry import Sessions
from orsay.sessions.session import Session

from tests.support.sessions import (
    ScriptedRuntime,
    ended,
    environment_info,
    make_sessions,
    make_shared,
    request_of,
    run_ready,
)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def create(sessions: Sessions, runtime: ScriptedRuntime, sid: str = "a", index: int = 0) -> Session:
    return await sessions.create(sid, "", runtime.info, request_of(runtime.info, index))


# who may change a session


def _public(kind: type) -> list[str]:
    found = [name for each in (kind, *kind.__bases__) for name in vars(each)]
    return sorted({name for name in found if isinstance(getattr(kind, name), property)})


@pytest.mark.parametrize("name", _public(Session))
async def test_what_changes_in_a_session_cannot_be_assigned(name: str) -> None:
    session = Session(make_shared(), "a", "", environment_info(), b"")
    with pytest.raises(AttributeError):
        setattr(session, name, None)


def _assignments(path: Path, slots: set[str]) -> list[str]:
    """Assignments to slots of a session, outside its methods; public ones by the name of the variable."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in slots):
            continue
        holder = ast.unparse(node.value)
        if holder != "self" and (node.attr.startswith("_") or holder.endswith("session")):
            found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_no_module_assigns_an_attribute_of_a_session() -> None:
    slots = {*Session.__slots__, *Lifecycle.__slots__}
    package = Path(orsay.__file__).parent
    assert [
        each
        for folder in ("sessions", "http", "console", "observe", "protocols", "serving")
        for path in sorted((package / folder).rglob("*.py"))
        for each in _assignments(path, slots)
    ] == []


def test_the_check_of_assignments_sees_one(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    seen = ("session._state, x = 'closed', 1", "it._uses += 1", "self.session.owner = ''")
    source.write_text("\n".join((*seen, "self._state = ''", "request.owner = ''")))
    found = _assignments(source, {"_state", "_uses", "owner"})
    assert sorted(found) == ["bad.py:1: session._state", "bad.py:2: it._uses", "bad.py:3: self.session.owner"]


# states


@pytest.mark.conformance("L1")
async def test_a_session_is_opening_then_starting_then_ready() -> None:
    runtime = ScriptedRuntime()
    runtime.gate, runtime.ends_setup = asyncio.Event(), False
    sessions = make_sessions(runtime)
    creating = asyncio.ensure_future(create(sessions, runtime))
    await run_ready()
    states: list[State] = [sessions.get("a", "").state]
    runtime.gate.set()
    session = await creating
    states.append(session.state)
    waiting = asyncio.ensure_future(session.ready())
    await run_ready()
    assert not waiting.done()
    runtime.last.listener.setup_ended(None)
    assert await waiting is session.handle
    assert [*states, session.state] == ["opening", "starting", "ready"]
    await sessions.close_all()


async def test_setup_may_end_before_the_constructor_is_known_to_have_run() -> None:
    runtime = ScriptedRuntime()
    sessions = make_sessions(runtime)
    assert (await create(sessions, runtime)).state == "ready"
    await sessions.close_all()


async def test_a_state_once_left_does_not_come_back() -> None:
    session = Session(make_shared(), "a", "", environment_info(), b"")
    session.end(SessionGone("over"), "deleted")
    session.opened()
    session.setup_ended(None)
    session.suspend(Starting("later"))
    assert session.state == "closed"
    with pytest.raises(SessionGone, match="over"):
        await session.ready()


@pytest.mark.conformance("L2")
async def test_a_setup_that_ends_while_the_session_closes_changes_nothing() -> None:
    runtime = ScriptedRuntime()
    runtime.ends_setup = False
    sessions = make_sessions(runtime)
    session = await create(sessions, runtime)
    runtime.last.close_gate = asyncio.Event()
    waiting = asyncio.ensure_future(session.ready())
    deleting = asyncio.ensure_future(sessions.delete("a", ""))
    await run_ready()
    runtime.last.listener.setup_ended(Faulted("setup_error", "too late"))
    states = [session.state]
    with pytest.raises(SessionGone, match="deleted"):
        await waiting
    runtime.last.close_gate.set()
    assert await deleting is None
    assert [*states, session.state] == ["closing", "closed"]
    assert runtime.last.closed == 1


async def test_a_failed_setup_is_raised_for_every_request_without_growing() -> None:
    runtime = ScriptedRuntime()
    runtime.setup_error = Faulted("setup_error", "no setup")
    sessions = make_sessions(runtime)
    session = await create(sessions, runtime)
    assert session.state == "failed"
    depths = set()
    for _ in range(20):
        with pytest.raises(Faulted, match="no setup") as caught:
            await session.ready()
        depths.add(len(caught.traceback))
    assert len(depths) <= 2
    await sessions.close_all()


async def test_a_request_waits_for_setup_no_longer_than_the_limit() -> None:
    runtime = ScriptedRuntime()
    runtime.ends_setup = False
    sessions = make_sessions(runtime, setup_wait_s=0.01)
    session = await create(sessions, runtime)
    with pytest.raises(Starting):
        await session.ready()
    await sessions.close_all()


async def test_requests_that_gave_up_waiting_for_setup_leave_nothing_behind() -> None:
    runtime = ScriptedRuntime()
    runtime.ends_setup = False
    sessions = make_sessions(runtime, setup_wait_s=0.01)
    session = await create(sessions, runtime)
    cancelled = asyncio.ensure_future(session.ready())
    await run_ready()
    assert _waiting(session) == 1
    cancelled.cancel()
    await asyncio.gather(*(session.ready() for _ in range(10)), cancelled, return_exceptions=True)
    assert _waiting(session) == 0
    await sessions.close_all()


def _waiting(session: Session) -> int:
    """Number of requests that the session would wake."""
    return len(session._waiters or ())


# opening


@pytest.mark.conformance("L1")
@pytest.mark.parametrize("fault", ["setup_error", "worker_lost"])
async def test_a_constructor_that_failed_leaves_no_session(fault: Any) -> None:
    runtime = ScriptedRuntime()
    runtime.open_error = Faulted(fault, "no room")
    sessions = make_sessions(runtime)
    with pytest.raises(Exception, match="no room"):
        await create(sessions, runtime)
    with pytest.raises(UnknownSession):
        sessions.get("a", "")
    runtime.open_error = None
    assert (await create(sessions, runtime)).state == "ready"
    await sessions.close_all()


@pytest.mark.conformance("L1")
async def test_the_same_request_joins_the_session_and_another_is_a_conflict() -> None:
    runtime = ScriptedRuntime()
    runtime.gate = asyncio.Event()
    sessions = make_sessions(runtime)
    creating = [asyncio.ensure_future(create(sessions, runtime)) for _ in range(3)]
    await run_ready()
    with pytest.raises(SessionConflict):
        await create(sessions, runtime, index=1)
    runtime.gate.set()
    assert len({id(each) for each in await asyncio.gather(*creating)}) == 1
    assert len(runtime.handles) == 1
    await sessions.close_all()


@pytest.mark.conformance("L2")
async def test_delete_while_the_constructor_runs_ends_both() -> None:
    runtime = ScriptedRuntime()
    runtime.gate = asyncio.Event()
    sessions = make_sessions(runtime)
    creating = asyncio.ensure_future(create(sessions, runtime))
    await run_ready()
    assert await sessions.delete("a", "") is None
    with pytest.raises(SessionGone, match="while it was constructed"):
        await creating
    assert not runtime.handles and len(sessions) == 0


@pytest.mark.conformance("I6")
async def test_no_more_sessions_than_the_bounds_of_server_and_key() -> None:
    runtime = ScriptedRuntime()
    sessions = make_sessions(runtime, max_sessions=2, max_sessions_per_owner=1)
    request = request_of(runtime.info)
    await sessions.create("a", "one", runtime.info, request)
    with pytest.raises(Overloaded, match="this key"):
        await sessions.create("b", "one", runtime.info, request)
    await sessions.create("b", "two", runtime.info, request)
    with pytest.raises(Overloaded, match="2 sessions"):
        await sessions.create("c", "three", runtime.info, request)
    await sessions.delete("a", "one")
    await sessions.create("c", "one", runtime.info, request)
    sessions.refuse_new()
    with pytest.raises(ShuttingDown):
        await sessions.create("d", "four", runtime.info, request)
    await sessions.close_all()


# the end


@pytest.mark.conformance("L2")
async def test_delete_while_deleting_waits_for_the_same_teardown() -> None:
    runtime = ScriptedRuntime()
    sessions = make_sessions(runtime)
    await create(sessions, runtime)
    runtime.last.close_gate = asyncio.Event()
    runtime.last.close_error = Faulted("internal", "no end")
    deleting = [asyncio.ensure_future(sessions.delete("a", "")) for _ in range(3)]
    await run_ready()
    assert not any(each.done() for each in deleting)
    runtime.last.close_gate.set()
    assert await asyncio.gather(*deleting) == [runtime.last.close_error] * 3
    assert runtime.last.closed == 1


@pytest.mark.conformance("L4")
async def test_a_tombstone_gives_its_owner_for_a_while_the_reason_of_an_end() -> None:
    clock, runtime = Clock(), ScriptedRuntime()
    sessions = make_sessions(runtime, now=clock, gone_memory_s=10)
    await create(sessions, runtime)
    await sessions.delete("a", "")
    with pytest.raises(SessionGone, match="Session deleted"):
        sessions.get("a", "")
    with pytest.raises(UnknownSession):
        sessions.get("a", "somebody else")
    clock.now += 11
    with pytest.raises(UnknownSession):
        sessions.get("a", "")


@pytest.mark.conformance("I4")
async def test_a_session_that_its_runtime_lost_is_gone_and_not_torn_down() -> None:
    runtime, meter = ScriptedRuntime(), Meter()
    sessions = make_sessions(runtime, meter=meter)
    session = await create(sessions, runtime)
    runtime.last.listener.lost("worker_lost", "its worker died")
    assert session.state == "closed" and runtime.last.closed == 0
    with pytest.raises(SessionGone, match="its worker died") as caught:
        sessions.get("a", "")
    assert caught.value.fault == "worker_lost"
    assert meter.ended == {("Rooms", "worker_lost"): 1}


async def test_a_session_that_was_lost_before_it_could_be_closed_ends_once() -> None:
    runtime, meter = ScriptedRuntime(), Meter()
    sessions = make_sessions(runtime, meter=meter)
    session = await create(sessions, runtime)
    closing = sessions.close(session, "idle", 1.0)  # decided, and not begun
    runtime.last.listener.lost("worker_lost", "its worker died")
    assert await closing is None
    assert meter.ended == {("Rooms", "worker_lost"): 1}
    with pytest.raises(SessionGone, match="its worker died"):
        sessions.get("a", "")


@pytest.mark.conformance("I4")
async def test_a_late_loss_does_not_touch_the_next_session_of_that_id() -> None:
    runtime = ScriptedRuntime()
    sessions = make_sessions(runtime)
    await create(sessions, runtime)
    old = runtime.last
    old.listener.lost("worker_lost", "its worker died")
    session = await create(sessions, runtime)
    old.listener.lost("worker_lost", "late")
    assert session.state == "ready" and sessions.get("a", "") is session
    assert sessions.meter.ended == {("Rooms", "worker_lost"): 1}
    await sessions.close_all()


# time


@pytest.mark.conformance("L3")
async def test_an_idle_session_expires_but_not_while_something_runs() -> None:
    clock, runtime = Clock(), ScriptedRuntime()
    sessions = make_sessions(runtime, now=clock, idle_limit_s=10)
    await create(sessions, runtime, "idle")
    touched = await create(sessions, runtime, "touched")
    calling = await create(sessions, runtime, "calling")
    asking = await create(sessions, runtime, "asking")
    runtime.ends_setup = False
    await create(sessions, runtime, "setting up")
    calling.start_call(await calling.ready(), "call", "play", b"{}", None)
    prompt = asyncio.ensure_future(asking.ask(await asking.ready(), "prompt"))
    await run_ready()
    clock.now += 9
    touched.touch()
    clock.now += 2
    sessions.expire()
    await run_ready()
    assert {sid for _, sid in sessions.live} == {"touched", "calling", "asking", "setting up"}
    with pytest.raises(SessionGone, match="idle for 10 s"):
        sessions.get("idle", "")
    runtime.handles[2].started[0].on_result(ended(), None)
    runtime.handles[3].started[0].on_result(b"[]", None)
    assert await prompt == b"[]"
    clock.now += 11
    sessions.expire()
    await run_ready()
    assert {sid for _, sid in sessions.live} == {"setting up"}
    await sessions.close_all()


@pytest.mark.conformance("L3")
async def test_a_session_expires_at_its_greatest_age_however_busy_it_was() -> None:
    clock, runtime = Clock(), ScriptedRuntime()
    sessions = make_sessions(runtime, now=clock, lifetime_limit_s=100)
    session = await create(sessions, runtime)
    clock.now += 101
    session.touch()
    sessions.expire()
    await run_ready()
    with pytest.raises(SessionGone, match="older than 100 s"):
        sessions.get("a", "")


@pytest.mark.conformance("L6")
async def test_the_end_of_the_server_waits_for_calls_and_tears_down() -> None:
    runtime = ScriptedRuntime()
    sessions = make_sessions(runtime)
    session = await create(sessions, runtime)
    call = session.start_call(await session.ready(), "call", "play", b"{}", None)
    draining = asyncio.ensure_future(sessions.drain(5.0))
    await run_ready()
    assert not draining.done()
    runtime.last.started[0].on_result(ended(), None)
    await draining
    assert call.outcome is not None and call.outcome.fault is None
    await sessions.close_all()
    assert runtime.last.closed == 1 and len(sessions) == 0
