"""Containers that end, hang or use too much, with calls under way; and what takes their place."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

import docker
import pytest
from orsay.errors import Overloaded, Starting
from orsay.runtimes.base import Runtime, TaskQuery
from orsay.runtimes.docker.engine import Engine
from orsay.runtimes.remote.options import RemoteOptions

from ..support.author_log import Log
from ..support.docker_runtime import SHORT, OwnServer, running, scripted_options, shares_files, where
from ..support.engine import needs_engine
from ..support.runtime_session import RuntimeSession, open_session

pytestmark = needs_engine


async def open_when_up(runtime: Runtime) -> RuntimeSession:
    """A session, as a client that tries again while containers start."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await open_session(runtime)
            except Starting:
                await asyncio.sleep(0.05)


async def test_a_killed_container_loses_its_sessions_and_nobody_elses(
    engine: Engine, own: OwnServer, log: Log
) -> None:
    async with running(scripted_options(replicas=2, **shares_files()), own) as runtime:
        one, two = [await open_session(runtime, log=str(log.path)) for _ in range(2)]
        assert await where(one) != await where(two)
        calls = [player.call("first", gate=log.gate("gate")) for player in (one, two)]
        await log.has("first+", 2)
        victim = await where(one)
        killed_at = time.monotonic()
        await engine.kill(victim)
        fault = await calls[0].fault()
        assert fault.fault == "worker_lost" and "ended by signal 9" in fault.message
        assert await one.is_lost() == ("worker_lost", "the container was ended by signal 9")
        assert time.monotonic() - killed_at < 5
        third = await open_session(runtime)  # while one replica is left, nobody waits
        assert await where(third) == await where(two)
        log.open("gate")
        assert await calls[1].text() == "first"
        async with asyncio.timeout(30):
            while len(await own.running()) < 2:
                await asyncio.sleep(0.1)
        others = {await where(await open_when_up(runtime)) for _ in range(4)}
        assert victim not in others
        await two.close()


async def test_the_only_container_is_replaced_within_seconds(engine: Engine, own: OwnServer) -> None:
    async with running(scripted_options(variables=SHORT), own) as runtime:
        player = await open_session(runtime)
        call = player.call("do", how="os._exit")  # ends a worker in it, not the container
        assert (await call.fault()).fault == "worker_lost"
        player = await open_when_up(runtime)
        victim = await where(player)
        await engine.kill(victim)
        await player.is_lost()
        with pytest.raises(Starting, match="are being started"):
            await open_session(runtime)
        assert runtime.environments and not runtime.pending  # discovery goes on
        again = await open_when_up(runtime)
        assert await where(again) != victim
        assert await again.call("say", text="back").text() == "back"


async def test_a_spare_takes_over_at_once(engine: Engine, own: OwnServer) -> None:
    async with running(scripted_options(spare=1), own) as runtime:
        assert len(await own.running()) == 2
        players = [await open_session(runtime) for _ in range(3)]
        assert len({await where(player) for player in players}) == 1  # the spare waits
        await engine.kill(await where(players[0]))
        await players[2].is_lost()
        assert await (await open_session(runtime)).call("say", text="at once").text() == "at once"
        async with asyncio.timeout(30):
            while len(await own.running()) < 2:
                await asyncio.sleep(0.1)


async def test_using_too_much_memory_is_reported_as_such(own: OwnServer) -> None:
    async with running(scripted_options(memory="160m"), own) as runtime:
        player = await open_session(runtime)
        fault = await player.call("hold", mebibytes=400).fault()
        assert fault.fault == "worker_lost"
        assert "killed for using more than 160m of memory" in fault.message
        assert (await player.is_lost())[0] == "worker_lost"


async def test_a_container_that_hangs_is_replaced(own: OwnServer) -> None:
    quick = RemoteOptions(health_s=0.2, request_timeout_s=0.5, silence_s=2)
    async with running(scripted_options(remote=quick, hang_limit_s=1, stop_grace_s=0.5), own) as runtime:
        player = await open_session(runtime)
        victim = await where(player)
        with closing(docker.from_env()) as client:
            client.containers.get(victim).pause()
        fault, reason = await player.is_lost()
        assert (fault, reason) == ("worker_lost", "the container did not answer for 1 s")
        assert await where(await open_when_up(runtime)) != victim


async def test_one_that_keeps_ending_is_tried_again_after_longer_and_longer_pauses(
    engine: Engine, own: OwnServer
) -> None:
    async with running(scripted_options(), own) as runtime:
        begun = time.monotonic()
        for _ in range(3):
            player = await open_when_up(runtime)
            await engine.kill(await where(player))
            await player.is_lost()
        await open_when_up(runtime)
        assert time.monotonic() - begun > 0.5 + 1.0 + 2.0


async def test_replicas_share_the_sessions_and_each_session_stays(own: OwnServer) -> None:
    async with running(scripted_options(replicas=2, max_sessions_per_replica=3), own) as runtime:
        players = await asyncio.gather(*(open_session(runtime) for _ in range(6)))
        places = [await where(player) for player in players]
        assert sorted(places.count(place) for place in set(places)) == [3, 3]
        with pytest.raises(Overloaded, match=r"all 2 containers .* have 3 sessions"):
            await open_session(runtime)
        count = TaskQuery(key="scripted", split="many", ask="count")
        assert await runtime.tasks(count) == b"1000"  # is no session
        for number in ("1", "2", "3"):
            assert [await player.call("add").text() for player in players] == [number] * 6
        assert [await where(player) for player in players] == places
        await players[0].close()
        assert await where(await open_session(runtime)) == places[0]
