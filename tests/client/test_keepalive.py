from __future__ import annotations

import asyncio

import pytest
from orsay_client import AsyncClient, SessionLost
from orsay_client.keepalive import Keepalive

from ..support.scripted_server import Reply, Request, ScriptedServer, ors
from ..support.waiting import until


class Quiet:
    """A session that only counts its pings."""

    def __init__(self, *, takes_s: float = 0.0, until: int = 1_000_000) -> None:
        self.touched_at = 0.0
        self.pings = 0
        self.enough = asyncio.Event()
        self._takes_s = takes_s
        self._until = until

    async def ping(self) -> bool:
        await asyncio.sleep(self._takes_s)
        self.pings += 1
        if self.pings >= 3:
            self.enough.set()
        return self.pings < self._until


def scheduler_tasks() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "orsay-keepalive"]


async def test_one_task_pings_all_sessions_and_ends_with_the_last() -> None:
    keepalive = Keepalive(0.02)
    sessions = [Quiet() for _ in range(300)]
    for session in sessions:
        keepalive.watch(session)
    assert len(scheduler_tasks()) == 1
    async with asyncio.timeout(20):
        for session in sessions:
            await session.enough.wait()
        assert len(scheduler_tasks()) == 1
        for session in sessions:
            keepalive.unwatch(session)
            keepalive.unwatch(session)
        await until(lambda: not scheduler_tasks())
    again = Quiet()
    keepalive.watch(again)
    await asyncio.wait_for(again.enough.wait(), 10)
    await keepalive.aclose()
    assert not scheduler_tasks()


async def test_pings_that_are_cancelled_before_they_run_take_no_room_from_later_ones() -> None:
    keepalive = Keepalive(0.0)
    for _ in range(200):
        leaving = Quiet()
        keepalive.watch(leaving)
        while not keepalive._watched[leaving]:
            await asyncio.sleep(0)
        keepalive.unwatch(leaving)
        assert leaving.pings == 0, "it ran"
    staying = Quiet()
    keepalive.watch(staying)
    await asyncio.wait_for(staying.enough.wait(), 10)
    await keepalive.aclose()


async def test_a_slow_ping_holds_up_no_other_session() -> None:
    keepalive = Keepalive(0.02)
    stuck, quick = Quiet(takes_s=60), Quiet()
    keepalive.watch(stuck)
    keepalive.watch(quick)
    await asyncio.wait_for(quick.enough.wait(), 10)
    keepalive.unwatch(stuck)
    await keepalive.aclose()


async def test_a_session_that_is_used_needs_no_ping() -> None:
    keepalive = Keepalive(0.2)
    loop = asyncio.get_running_loop()
    busy, idle = Quiet(), Quiet()
    keepalive.watch(busy)
    keepalive.watch(idle)
    async with asyncio.timeout(10):
        while not idle.enough.is_set():
            busy.touched_at = loop.time()
            await asyncio.sleep(0.01)
    assert busy.pings == 0
    await keepalive.aclose()


async def test_a_session_found_dead_is_pinged_no_more() -> None:
    keepalive = Keepalive(0.01)
    dead, alive = Quiet(until=1), Quiet()
    keepalive.watch(dead)
    keepalive.watch(alive)
    await asyncio.wait_for(alive.enough.wait(), 10)
    assert dead.pings == 1
    await keepalive.aclose()


@pytest.mark.parametrize("status", [404, 410])
async def test_a_session_lost_on_the_server_is_noticed_before_the_next_call(status: int) -> None:
    pinged = asyncio.Event()

    async def ping(request: Request, reply: Reply) -> None:
        await reply.json({"detail": "expired"}, status)
        pinged.set()

    async with (
        ScriptedServer(ors(others={"/ping": ping})) as server,
        AsyncClient(server.url, keepalive_s=0.02) as client,
    ):
        async with client.environment().session(task_spec={}) as session:
            await asyncio.wait_for(pinged.wait(), 10)
            await until(lambda: "lost" in repr(session))
            for _ in range(2):
                with pytest.raises(SessionLost, match="keep-alive: expired"):
                    await session.call("x")
        assert not server.sent("/call") and not server.sent("/delete")
        assert len(server.sent("/ping")) == 1


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_other_answers_to_a_ping_end_nothing(status: int) -> None:
    pings = 0
    enough = asyncio.Event()

    async def ping(request: Request, reply: Reply) -> None:
        nonlocal pings
        pings += 1
        if pings == 3:
            enough.set()
        if pings == 2:
            return reply.cut()
        return await reply.json({}, status)

    async with (
        ScriptedServer(ors(others={"/ping": ping})) as server,
        AsyncClient(server.url, keepalive_s=0.02) as client,
        client.environment().session(task_spec={}) as session,
    ):
        await asyncio.wait_for(enough.wait(), 10)
        await session.call("x")


async def test_pings_go_on_while_a_call_runs() -> None:
    enough = asyncio.Event()
    pings = 0

    async def ping(request: Request, reply: Reply) -> None:
        nonlocal pings
        pings += 1
        if pings == 3:
            enough.set()
        await reply.json({"status": "ok"})

    async def call(request: Request, reply: Reply) -> None:
        await asyncio.wait_for(enough.wait(), 10)
        await ors()(request, reply)

    async with (
        ScriptedServer(ors(call=call, others={"/ping": ping})) as server,
        AsyncClient(server.url, keepalive_s=0.02) as client,
        client.environment().session(task_spec={}) as session,
    ):
        await session.call("x")
