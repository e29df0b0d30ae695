"""Sessions that are rebuilt from a real journal, on objects: a kill is a journal that gets nothing more."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from orsay import Environment, ToolOutput, tool
from orsay.errors import Faulted, Overloaded, SessionConflict, SessionGone, Starting, UnknownSession
from orsay.journal.write.wal import wait_for_living
from orsay.runtimes.base import Runtime
from orsay.sessions.call import Call
from orsay.sessions.session import Session
from orsay.sessions.timers import Delay

from tests.support.sessions import (
    JournaledSessions,
    ScriptedHandle,
    ScriptedRuntime,
    ended,
    environment_info,
    local_runtime,
    request_of,
    run_ready,
)

BOUND_S = 30.0


class Sum(Environment):
    """Adds numbers up; the class says what differs when an episode is played again."""

    replayable = True
    splits: ClassVar = {"train": [{"first": 5}, {"first": 6}]}
    made: ClassVar[list[Sum]] = []
    beginning: ClassVar[str] = "Begin."
    gate: ClassVar[asyncio.Event | None] = None

    async def setup(self) -> None:
        self.made.append(self)
        self.total = int(self.task["first"])
        self.torn_down = 0

    async def prompt(self) -> str:
        return self.beginning

    async def teardown(self) -> None:
        self.torn_down += 1

    @tool
    async def add(self, number: int) -> ToolOutput:
        """Add a number."""
        if self.gate is not None:
            await self.gate.wait()
        self.total += number
        return ToolOutput(blocks=[str(self.total)], reward=float(self.total))

    @tool
    async def turn(self) -> str:
        """The number of sessions so far."""
        return str(len(self.made))

    @tool
    async def fail(self) -> str:
        """Count, and raise."""
        self.total += 100
        raise ValueError("no")

    @tool
    async def end(self) -> ToolOutput:
        """The end."""
        return ToolOutput(blocks=["over"], reward=0.5, finished=True)


class Mortal(Sum):
    """The same, without being replayable."""

    replayable = False


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    Sum.made.clear()
    Sum.beginning, Sum.gate = "Begin.", None
    yield
    Sum.gate = None


@asynccontextmanager
async def server(
    file: Path, runtime: Runtime | None = None, **limits: Any
) -> AsyncIterator[JournaledSessions]:
    """Killed at the end, unless the test has stopped it."""
    found = JournaledSessions(runtime or local_runtime(Sum), file, **limits)
    await found.start()
    try:
        yield found
    finally:
        await found.kill()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def rows(file: Path, query: str) -> list[tuple[Any, ...]]:
    wait_for_living(file)
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(query).fetchall()


async def created(found: JournaledSessions, sid: str = "a", index: int = 0, **more: Any) -> Session:
    info = found.runtime.environments[0]
    return await found.sessions.create(sid, "", info, request_of(info, index, **more))


async def called(session: Session, name: str, arguments: str = "{}", key: str | None = None) -> Call:
    handle = await session.ready()
    body = f'{{"name":"{name}","input":{arguments}}}'.encode()
    call = session.start_call(handle, "call", name, body, key)
    assert await call.wait(Delay(BOUND_S))
    return call


def text(call: Call) -> str:
    assert call.outcome is not None
    return call.outcome.wire.decode()


async def gone(found: JournaledSessions, match: str, sid: str = "a") -> SessionGone:
    with pytest.raises(SessionGone, match=match) as caught:
        await found.sessions.get(sid, "").ready()
    with pytest.raises(SessionGone, match=match):
        found.sessions.get(sid, "")
    return caught.value


@pytest.mark.conformance("L7", "D6")
async def test_a_session_goes_on_where_the_kill_left_it(file: Path) -> None:
    async with server(file) as first:
        session = await created(first)
        await session.ask(await session.ready(), "prompt")
        early = await called(session, "add", '{"number":1}', key="k")
        await called(session, "fail")
    async with server(file) as second:
        session = second.sessions.get("a", "")
        assert session.state == "opening"
        again = await called(session, "add", '{"number":1}', key="k")
        assert (again.task_id, text(again)) == (early.task_id, text(early)) and again is not early
        assert session.attach(early.task_id, "call") is again
        assert "107" in text(await called(session, "add", '{"number":1}'))
        assert (session.call_count, session.reward, session.finished) == (3, 107.0, False)
        assert len(Sum.made) == 2
        await second.sessions.delete("a", "")
    assert rows(file, "select calls, faults, reward, end_reason from sessions") == [
        (3, 1, 107.0, "Session deleted")
    ]
    assert rows(file, "select number from calls order by number") == [(1,), (2,), (3,)]


@pytest.mark.conformance("L7")
async def test_a_finished_session_stays_finished(file: Path) -> None:
    async with server(file) as first:
        await called(await created(first), "end")
    async with server(file) as second:
        session = second.sessions.get("a", "")
        await session.ready()
        assert (session.reward, session.finished) == (0.5, True)
        assert "episode_finished" in text(await called(session, "add", '{"number":1}'))


@pytest.mark.conformance("L7", "D2")
async def test_a_call_that_had_begun_is_made_anew_under_its_task_id(file: Path) -> None:
    Sum.gate = asyncio.Event()
    async with server(file) as first:
        session = await created(first)
        body = b'{"name":"add","input":{"number":1}}'
        call = session.start_call(await session.ready(), "call", "add", body, "k")
        await session.begin_stream(call)
    async with server(file) as second:
        session = second.sessions.get("a", "")
        await session.ready()
        again = session.attach(call.task_id, "call")
        assert again is not call and again.outcome is None and session.busy
        await session.begin_stream(again)
        Sum.gate.set()
        assert await again.wait(Delay(BOUND_S))
        assert "6" in text(again)
        assert await called(session, "add", '{"number":1}', key="k") is again
        await second.sessions.delete("a", "")
    assert rows(file, "select task_id, number from calls") == [(call.task_id, 1)]


@pytest.mark.conformance("L7", "D6")
async def test_a_call_that_was_refused_after_its_stream_had_begun_is_not_made(file: Path) -> None:
    async with server(file) as first:
        session = await created(first)
        await session.ready()
        full = ScriptedHandle(request_of(first.runtime.environments[0]), session)
        call = session.start_call(full, "call", "add", b'{"name":"add","input":{"number":1}}', "k")
        await session.begin_stream(call)
        full.started[0].on_result(None, Overloaded("no thread is free"))
        assert await call.wait(Delay(BOUND_S))
        assert "7" in text(await called(session, "add", '{"number":2}'))
    async with server(file) as second:
        session = second.sessions.get("a", "")
        assert "12" in text(await called(session, "add", '{"number":5}'))
        await second.sessions.delete("a", "")


@pytest.mark.conformance("L7", "L1")
async def test_create_joins_the_session_of_before_and_another_request_is_a_conflict(file: Path) -> None:
    async with server(file) as first:
        await called(await created(first), "add", '{"number":1}')
    async with server(file) as second:
        session = await created(second)
        assert "7" in text(await called(session, "add", '{"number":1}'))
        with pytest.raises(SessionConflict):
            await created(second, index=1)


@pytest.mark.conformance("L7", "L4")
async def test_other_owners_do_not_find_a_session_of_before(file: Path) -> None:
    async with server(file) as first:
        await created(first)
    async with server(file) as second:
        with pytest.raises(UnknownSession):
            second.sessions.get("a", "somebody else")
        assert len(Sum.made) == 1


@pytest.mark.conformance("L7")
async def test_until_the_journal_is_read_no_session_is_known_to_be_gone(file: Path) -> None:
    found = JournaledSessions(local_runtime(Sum), file)
    with pytest.raises(Starting):
        found.sessions.get("a", "")
    with pytest.raises(Starting):
        await found.sessions.delete("a", "")


@pytest.mark.conformance("L2", "L7")
@pytest.mark.parametrize("load_wait_s", [0, 20])
async def test_a_delete_waits_a_bounded_time_for_the_journal_to_be_read(
    file: Path, load_wait_s: float
) -> None:
    async with server(file) as first:
        await created(first)
    found = JournaledSessions(local_runtime(Sum), file, load_wait_s=load_wait_s)
    found.writer.start()
    await found.runtime.start()
    try:
        found.sessions.start()
        if not load_wait_s:
            with pytest.raises(Starting):
                await found.sessions.delete("a", "")
            return
        await found.sessions.delete("a", "")
        with pytest.raises(SessionGone, match="deleted"):
            found.sessions.get("a", "")
        assert await found.sessions.delete("nobody", "") is None
    finally:
        await found.stop()


# what cannot go on


@pytest.mark.conformance("L7", "L4")
async def test_a_session_that_is_not_replayable_says_that_the_server_was_restarted(file: Path) -> None:
    async with server(file, local_runtime(Mortal)) as first:
        await called(await created(first), "add", '{"number":1}')
    async with server(file, local_runtime(Mortal)) as second:
        with pytest.raises(SessionGone, match="server restarted"):
            second.sessions.get("a", "")
    assert rows(file, "select calls, end_reason is null, fault from sessions") == [(1, 0, "session_gone")]


@pytest.mark.conformance("L7", "S3")
async def test_a_session_with_secrets_is_not_rebuilt(file: Path) -> None:
    async with server(file) as first:
        await created(first, secrets={"token": "very-secret-value"})
    async with server(file) as second:
        with pytest.raises(SessionGone, match="secrets"):
            second.sessions.get("a", "")
    for each in file.parent.glob(f"{file.name}*"):
        assert b"very-secret-value" not in each.read_bytes()


@pytest.mark.conformance("L7")
async def test_a_session_with_another_answer_is_gone(file: Path) -> None:
    async with server(file) as first:
        session = await created(first)
        await called(session, "add", '{"number":1}')
        await called(session, "turn")
    async with server(file) as second:
        await gone(second, "the result of its call 2 of 'turn' differs")
    assert [each.torn_down for each in Sum.made] == [1, 1]


@pytest.mark.conformance("L7")
async def test_a_session_with_another_prompt_is_gone(file: Path) -> None:
    async with server(file) as first:
        session = await created(first)
        await session.ask(await session.ready(), "prompt")
    Sum.beginning = "Begin anew."
    async with server(file) as second:
        await gone(second, "its prompt differs from the recorded one")


@pytest.mark.conformance("L7")
async def test_a_session_whose_environment_left_is_gone(file: Path) -> None:
    async with server(file) as first:
        await created(first)
    async with server(file, local_runtime(Mortal)) as second:
        await gone(second, "'sum' is not here any more")


@pytest.mark.conformance("L7")
async def test_a_session_that_was_interrupted_is_gone(file: Path) -> None:
    runtime = ScriptedRuntime(environment_info(replayable=True))
    async with server(file, runtime) as first:
        session = await created(first)
        call = session.start_call(await session.ready(), "call", "play", b'{"name":"play","input":{}}', None)
        runtime.last.started[0].on_result(None, Faulted("time_limit", "too slow"))
        assert await call.wait(Delay(BOUND_S))
        assert not session.rebuildable
    async with server(file, runtime) as second:
        await gone(second, "stopped half-way")


@pytest.mark.conformance("L7", "L2")
async def test_a_session_of_before_is_deleted_without_being_rebuilt(file: Path) -> None:
    async with server(file) as first:
        await created(first)
    async with server(file) as second:
        assert await second.sessions.delete("a", "") is None
        with pytest.raises(SessionGone, match="Session deleted"):
            second.sessions.get("a", "")
        assert len(Sum.made) == 1
    async with server(file) as third:
        with pytest.raises(SessionGone, match="Session deleted"):
            third.sessions.get("a", "")


@pytest.mark.conformance("L7", "L2")
async def test_delete_while_a_session_is_rebuilt_ends_it(file: Path) -> None:
    async with server(file) as first:
        await called(await created(first), "add", '{"number":1}')
    Sum.gate = asyncio.Event()  # the replay waits
    async with server(file) as second:
        session = second.sessions.get("a", "")
        waiting = asyncio.ensure_future(session.ready())
        async with asyncio.timeout(BOUND_S):
            while len(Sum.made) < 2:
                await asyncio.sleep(0.001)
        assert await second.sessions.delete("a", "") is None
        with pytest.raises(SessionGone, match="Session deleted"):
            await waiting
        assert len(second.sessions) == 0
    assert [each.torn_down for each in Sum.made] == [1, 1]


@pytest.mark.conformance("L7", "L3")
async def test_a_session_of_before_that_nobody_asks_for_expires(file: Path) -> None:
    async with server(file) as first:
        await created(first)
    async with server(file, idle_limit_s=0.0) as second:
        second.sessions.expire()
        async with asyncio.timeout(BOUND_S):
            while not isinstance(error := _error(second), SessionGone):
                await asyncio.sleep(0.01)
        assert str(error) == "Session expired: idle for 0 s after a restart"
    assert rows(file, "select fault from sessions where ended_at is not null") == [(None,)]


def _error(found: JournaledSessions) -> Exception | None:
    try:
        found.sessions.get("a", "")
    except (SessionGone, UnknownSession) as exc:
        return exc
    return None


# a worker dies, a server ends in order


@pytest.mark.conformance("I4", "L7")
async def test_an_idle_session_of_a_dead_worker_is_rebuilt_when_it_is_asked_for(file: Path) -> None:
    async with server(file) as found:
        lost = await created(found)
        first = await called(lost, "add", '{"number":1}')
        lost.lost("worker_lost", "its worker died")
        assert lost.state == "failed" and len(found.sessions) == 0
        with pytest.raises(Starting, match="its worker died"):
            await lost.ready()
        session = found.sessions.get("a", "")
        assert session is not lost
        assert "8" in text(await called(session, "add", '{"number":2}'))
        assert session.attach(first.task_id, "call") is not first
        await found.sessions.delete("a", "")
    assert rows(file, "select calls, end_reason from sessions") == [(2, "Session deleted")]


@pytest.mark.conformance("I4", "L7")
async def test_a_session_of_a_dead_worker_that_ran_a_call_is_gone(file: Path) -> None:
    Sum.gate = asyncio.Event()
    async with server(file) as found:
        session = await created(found)
        body = b'{"name":"add","input":{"number":1}}'
        call = session.start_call(await session.ready(), "call", "add", body, None)
        session.lost("worker_lost", "its worker died")
        assert call.outcome is not None and call.outcome.fault is not None
        with pytest.raises(SessionGone, match="its worker died") as caught:
            found.sessions.get("a", "")
        assert caught.value.fault == "worker_lost"


@pytest.mark.conformance("I4", "L7")
async def test_a_session_that_takes_three_workers_along_is_given_up(file: Path) -> None:
    runtime = ScriptedRuntime(environment_info(replayable=True))
    runtime.answers = [ended('"went on"')]
    async with server(file, runtime) as found:
        session = await created(found)
        await called(session, "play")
        session.lost("worker_lost", "its worker died")
        for _ in range(2):
            runtime.answers = [Faulted("worker_lost", "this one died too")]
            with pytest.raises(Starting, match="cannot be built again yet"):
                await found.sessions.get("a", "").ready()
        runtime.answers = [Faulted("worker_lost", "this one died too")]
        error = await gone(found, "could not be built again")
        assert error.fault == "worker_lost"
        assert [handle.closed for handle in runtime.handles] == [0, 1, 1, 1]


@pytest.mark.conformance("L6", "L7")
async def test_a_session_goes_on_after_a_server_that_ended_in_order(file: Path) -> None:
    first = JournaledSessions(local_runtime(Sum), file)
    await first.start()
    await called(session := await created(first), "add", '{"number":1}')
    first.sessions.refuse_new()
    await first.stop()
    assert session.state == "failed" and Sum.made[0].torn_down == 1
    with pytest.raises(Starting, match="shutting down"):
        first.sessions.get("a", "")
    async with server(file) as second:
        assert "8" in text(await called(second.sessions.get("a", ""), "add", '{"number":2}'))


@pytest.mark.conformance("L6")
async def test_a_session_that_is_not_replayable_ends_with_a_server_that_ends_in_order(file: Path) -> None:
    first = JournaledSessions(local_runtime(Mortal), file)
    await first.start()
    await created(first)
    await first.stop()
    await run_ready()
    async with server(file, local_runtime(Mortal)) as second:
        with pytest.raises(SessionGone, match="the server is shutting down"):
            second.sessions.get("a", "")
