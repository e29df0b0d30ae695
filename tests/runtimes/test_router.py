"""Several runtimes as one: names, routes, limits, members that come and go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from orsay.errors import Faulted, LoadError, Overloaded, UnknownEnvironment
from orsay.runtimes.base import OpenSession, TaskQuery
from orsay.runtimes.local import LocalRuntime
from orsay.runtimes.process.pool import ProcessHandle
from orsay.runtimes.router import Member, RouterRuntime

from ..support.author_log import Log
from ..support.environments import FILE
from ..support.runtime_session import RuntimeSession, open_session
from ..support.runtimes import local_runtime, process_runtime
from ..support.waiting import until

pytestmark = pytest.mark.process

SCRIPTED, ASYNC, PLAIN = (f"{FILE}:{name}" for name in ("Scripted", "AsyncScripted", "Plain"))


@asynccontextmanager
async def mixed(*members: Member) -> AsyncIterator[RouterRuntime]:
    runtime = RouterRuntime(members)
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()


def local(*targets: str) -> LocalRuntime:
    return local_runtime(list(targets))


def keys(runtime: RouterRuntime) -> list[str]:
    return [info.key for info in runtime.environments]


class Late(LocalRuntime):
    """Knows its environments when the test says so, as a server that comes up later does."""

    def __init__(self, *targets: str) -> None:
        inner = local(*targets)
        super().__init__(inner._classes, inner._limits, threads=300)

    async def start(self) -> None:
        await super().start()
        self._known = self.environments
        self.hide()

    def hide(self) -> None:
        self.environments, self.pending = (), ("late",)

    def show(self) -> None:
        self.environments, self.pending = self._known, ()


# names and routes


async def test_environments_are_listed_in_the_order_of_the_members() -> None:
    async with mixed(Member("a", local(PLAIN, SCRIPTED)), Member("b", local(ASYNC))) as runtime:
        assert keys(runtime) == ["plain", "scripted", "asyncscripted"]
        assert [info.leads for info in runtime.environments] == [True, False, False]
        assert not runtime.pending


async def test_the_default_of_another_server_is_not_the_default_here() -> None:
    late, elsewhere = Late(SCRIPTED), local(PLAIN)
    async with mixed(
        Member("late", late), Member("elsewhere", RouterRuntime([Member("it", elsewhere)]))
    ) as runtime:
        (plain,) = runtime.environments
        assert not plain.leads
        assert "leads" not in plain.model_dump_json()


async def test_before_the_start_everything_is_pending() -> None:
    runtime = RouterRuntime([Member("a", local(PLAIN)), Member("b", local(SCRIPTED))])
    assert list(runtime.pending) == ["a", "b"] and not runtime.environments
    await runtime.stop()


async def test_a_renamed_environment_plays_and_lists_tasks_under_its_new_name() -> None:
    first = Member("a", local(SCRIPTED, PLAIN), serve={"SCRIPTED": "Earth"})
    async with mixed(first, Member("b", local(SCRIPTED))) as runtime:
        assert [(info.name, info.key) for info in runtime.environments] == [
            ("Earth", "earth"),
            ("Scripted", "scripted"),
        ]
        player = await open_session(runtime, "earth", number=5)
        assert await player.start("prompt").result() == [{"text": "Task 5", "detail": None, "type": "text"}]
        await player.close()
        count = await runtime.tasks(TaskQuery(key="earth", split="train", ask="count"))
        assert json.loads(count) == 3
        for asked in (OpenSession(key="plain", task_spec={}), OpenSession(key="asyncscripted", task_spec={})):
            with pytest.raises(UnknownEnvironment):
                await runtime.open(asked, RuntimeSession())
        with pytest.raises(UnknownEnvironment):
            await runtime.tasks(TaskQuery(key="plain", split="train", ask="count"))


async def test_the_order_of_what_is_picked_is_that_of_the_list() -> None:
    member = Member("a", local(SCRIPTED, ASYNC, PLAIN), serve={"plain": "plain", "scripted": "Scripted"})
    async with mixed(member) as runtime:
        assert [info.name for info in runtime.environments] == ["Plain", "Scripted"]


async def test_limits_of_a_member_are_for_environments_that_set_none() -> None:
    async with mixed(Member("a", local(SCRIPTED), call_time_limit_s=7, setup_time_limit_s=8)) as runtime:
        (info,) = runtime.environments
        assert (info.call_time_limit_s, info.setup_time_limit_s) == (7, 8)
        assert info.tool_time_limits_s == {"limited": 0.3, "limited_async": 0.3, "limited_to_a_second": 1.0}


async def test_a_session_passes_nothing_on_the_way_of_a_call() -> None:
    async with mixed(Member("a", process_runtime(targets=[SCRIPTED]))) as runtime:
        player = await open_session(runtime, "scripted")
        assert isinstance(player.handle.start.__self__, ProcessHandle)  # type: ignore[attr-defined]
        await player.close()


async def test_names_that_two_members_have_stop_the_start() -> None:
    members = [Member("'a' (f:1)", local(SCRIPTED)), Member("'b' (f:3)", local(PLAIN, SCRIPTED))]
    with pytest.raises(LoadError, match=r"'scripted': one of 'a' \(f:1\), one of 'b' \(f:3\)"):
        async with mixed(*members):
            pass


async def test_one_member_cannot_give_two_environments_one_name() -> None:
    member = Member("a", local(SCRIPTED, PLAIN), serve={"scripted": "same", "plain": "Same"})
    with pytest.raises(LoadError, match="'same'"):
        async with mixed(member):
            pass


async def test_a_name_to_serve_that_is_not_there_stops_the_start() -> None:
    with pytest.raises(LoadError, match="a has no environment 'scripte' to serve; did you mean 'scripted'"):
        async with mixed(Member("a", local(SCRIPTED), serve={"scripte": "scripte"})):
            pass


async def test_every_member_that_cannot_start_is_reported_and_the_others_are_stopped() -> None:
    fine = process_runtime(targets=[SCRIPTED])
    bad = [Member(name, process_runtime(targets=[f"{FILE}:{name}"])) for name in ("Scriptd", "Plainn")]
    with pytest.raises(LoadError) as caught:
        async with mixed(bad[0], Member("fine", fine), bad[1]):
            pass
    first, second = str(caught.value).splitlines()
    assert first.startswith("Scriptd: ") and "did you mean 'Scripted'" in first
    assert second.startswith("Plainn: ") and "did you mean 'Plain'" in second
    with pytest.raises(Exception, match="shutting down"):
        await fine.open(OpenSession(key="scripted", task_spec={}), RuntimeSession())


# members that are not up


async def test_what_is_known_later_is_added_then_in_its_place() -> None:
    late, reported = Late(SCRIPTED), []
    runtime = RouterRuntime(
        [Member("late", late), Member("b", local(PLAIN))], changed=lambda: reported.append(1)
    )
    await runtime.start()
    try:
        assert keys(runtime) == ["plain"] and list(runtime.pending) == ["late"] and len(reported) == 1
        assert not any(info.leads for info in runtime.environments), "the default is still to come"
        late.show()
        assert keys(runtime) == ["scripted", "plain"] and not runtime.pending and len(reported) == 2
        assert runtime.environments[0].leads
        assert runtime.environments is runtime.environments, "and looked at once"
        await (await open_session(runtime, "scripted")).close()
    finally:
        await runtime.stop()


async def test_a_name_that_comes_later_and_is_taken_is_left_out() -> None:
    late = Late(SCRIPTED, ASYNC)
    async with mixed(Member("a", local(SCRIPTED)), Member("late", late)) as runtime:
        late.show()
        assert keys(runtime) == ["scripted", "asyncscripted"]
        assert runtime._route("scripted")[0].label == "a"


# limits


async def test_the_limit_of_a_member_holds_and_a_session_that_ends_makes_room() -> None:
    small = Member("small", process_runtime(targets=[SCRIPTED]), max_sessions=1)
    async with mixed(small, Member("b", local(PLAIN))) as runtime:
        player = await open_session(runtime, "scripted")
        with pytest.raises(Overloaded, match="'scripted' is at maximum capacity: 1 sessions"):
            await open_session(runtime, "scripted")
        await (await open_session(runtime, "plain")).close()
        await player.close()
        again = await open_session(runtime, "scripted")
        again.call("do", how="os._exit")
        assert (await again.is_lost())[0] == "worker_lost"
        assert small.sessions == 0
        await (await open_session(runtime, "scripted")).close()


@pytest.mark.parametrize("how", ["ValueError", "os._exit"])
async def test_a_session_that_cannot_be_opened_takes_no_room(how: str) -> None:
    small = Member("small", process_runtime(targets=[SCRIPTED]), max_sessions=1)
    async with mixed(small) as runtime:
        for _ in range(2):
            with pytest.raises(Faulted):
                await open_session(runtime, "scripted", constructor=how)
            assert small.sessions == 0
        await (await open_session(runtime, "scripted")).close()


async def test_an_opening_that_is_given_up_takes_no_room(log: Log) -> None:
    small = Member("small", process_runtime(targets=[SCRIPTED]), max_sessions=1)
    async with mixed(small) as runtime:
        opening = asyncio.create_task(
            open_session(runtime, "scripted", log=str(log.path), constructor=f"wait:{log.gate('a')}")
        )
        await log.has("construct")
        assert small.sessions == 1
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        assert small.sessions == 0


# members that come and go


async def test_a_member_that_leaves_plays_its_sessions_and_is_stopped_then(log: Log) -> None:
    pool = process_runtime(targets=[SCRIPTED])
    leaving, staying = Member("a", pool, retire=pool.retire), Member("b", local(PLAIN))
    async with mixed(leaving, staying) as runtime:
        player = await open_session(runtime, "scripted", log=str(log.path))
        call = player.call("add_later", gate=log.gate("a"))
        await log.has("add")
        await runtime.replace([staying])
        assert keys(runtime) == ["plain"]
        with pytest.raises(UnknownEnvironment):
            await open_session(runtime, "scripted")
        log.open("a")
        assert await call.text() == "1"
        assert await player.call("add").text() == "2"
        assert not pool._stopping
        await player.close()
        await until(lambda: pool._stopping)
        assert log.count("gone") == 1


async def test_a_member_without_sessions_is_stopped_at_once() -> None:
    pool = process_runtime(targets=[SCRIPTED])
    staying = Member("b", local(PLAIN))
    async with mixed(Member("a", pool), staying) as runtime:
        await runtime.replace([staying])
        await until(lambda: pool._stopping)


async def test_a_member_is_not_stopped_while_a_session_opens_or_tasks_are_listed(log: Log) -> None:
    pool = process_runtime(targets=[SCRIPTED])
    staying = Member("b", local(PLAIN))
    async with mixed(Member("a", pool, retire=pool.retire), staying) as runtime:
        opening = asyncio.create_task(
            open_session(runtime, "scripted", log=str(log.path), constructor=f"wait:{log.gate('a')}")
        )
        await log.has("construct")
        await runtime.replace([staying])
        log.open("a")
        player = await opening
        assert await player.call("say", text="late").text() == "late"
        await player.close()
        await until(lambda: pool._stopping)


async def test_members_that_stay_are_not_started_again() -> None:
    staying, fresh = Member("a", process_runtime(targets=[SCRIPTED])), Member("b", local(PLAIN))
    async with mixed(staying) as runtime:
        player = await open_session(runtime, "scripted")
        place = await player.call("where").text()
        await runtime.replace([fresh, staying])
        assert keys(runtime) == ["plain", "scripted"]
        again = await open_session(runtime, "scripted")
        assert await again.call("where").text() == place
        await again.close()
        await player.close()


@pytest.mark.parametrize("target", [f"{FILE}:Nobody", SCRIPTED])
async def test_a_member_that_cannot_come_changes_nothing(target: str) -> None:
    staying, gone = Member("a", local(SCRIPTED)), Member("b", local(PLAIN))
    newcomer = process_runtime(targets=[target])
    async with mixed(staying, gone) as runtime:
        before = runtime.environments
        with pytest.raises(LoadError):
            await runtime.replace([staying, Member("c", newcomer)])
        assert runtime.environments is before and runtime.members == (staying, gone)
        assert newcomer._stopping
        await (await open_session(runtime, "plain", target="x")).close()


async def test_members_change_under_load_and_no_session_is_lost() -> None:
    """Sessions open, play and close all the time while the only pool is exchanged again and again."""

    def pool() -> Member:
        runtime = process_runtime(targets=[SCRIPTED])
        return Member("pool", runtime, retire=runtime.retire)

    async with mixed(pool()) as runtime:
        ended = asyncio.Event()
        played = 0

        async def play() -> None:
            nonlocal played
            while not ended.is_set():
                player = await open_session(runtime, "scripted")
                for number in range(1, 4):
                    assert await player.call("add").text() == str(number)
                await player.close()
                assert not player.losses
                played += 1

        players = [asyncio.create_task(play()) for _ in range(10)]
        for _ in range(4):
            before = played
            while played < before + 10 and not any(each.done() for each in players):
                await asyncio.sleep(0.01)
            await runtime.replace([pool()])
        ended.set()
        await asyncio.gather(*players)
        assert played > 40
        await until(lambda: not runtime._leaving)


async def test_stopping_stops_those_that_are_leaving_too(log: Log) -> None:
    pool, staying = process_runtime(targets=[SCRIPTED]), Member("b", local(PLAIN))
    async with mixed(Member("a", pool), staying) as runtime:
        await open_session(runtime, "scripted")
        await runtime.replace([staying])
        assert not pool._stopping
    assert pool._stopping
