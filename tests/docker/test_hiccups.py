"""An engine that goes away for a while under containers that go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import structlog
from orsay.runtimes.docker.engine import Engine

from ..support.docker_runtime import EngineProxy, OwnServer, running, scripted_options, where
from ..support.engine import image, needs_engine
from ..support.runtime_session import open_session

pytestmark = needs_engine


@pytest_asyncio.fixture
async def proxy(own: OwnServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EngineProxy]:
    """All engines from here on are reached through it; the test's own was before."""
    image("scripted")  # built, if need be, without the proxy: it blocks, and the proxy is served here
    async with EngineProxy() as made:
        monkeypatch.setenv("DOCKER_HOST", made.engine_url)
        yield made


async def test_sessions_and_leases_outlive_a_broken_connection(own: OwnServer, proxy: EngineProxy) -> None:
    async with running(scripted_options(lease_s=4), own) as runtime:
        player = await open_session(runtime)
        place = await where(player)
        proxy.cut()
        await asyncio.sleep(8)  # two leases
        assert await where(player) == place
        assert player.losses == []
        await player.close()


async def test_an_end_while_the_engine_was_away_is_noticed_when_it_is_back(
    engine: Engine, own: OwnServer, proxy: EngineProxy
) -> None:
    async with running(scripted_options(), own) as runtime:
        player = await open_session(runtime)
        place = await where(player)
        proxy.closed = True
        proxy.cut()
        await engine.kill(place)
        await asyncio.sleep(1)
        proxy.closed = False
        assert await player.is_lost() == ("worker_lost", "the container was ended by signal 9")
        async with asyncio.timeout(30):
            while not await own.running():
                await asyncio.sleep(0.1)


async def test_what_is_written_after_a_broken_connection_is_in_the_log(
    own: OwnServer, proxy: EngineProxy
) -> None:
    variables = {"ORSAY_LOG_LEVEL": "info"}
    with structlog.testing.capture_logs() as lines:
        async with running(scripted_options(variables=variables), own) as runtime:
            proxy.cut()
            await asyncio.sleep(2)
            player = await open_session(runtime)
            await player.close()
            async with asyncio.timeout(10):
                while not any("session_ended" in line.get("line", "") for line in lines):
                    await asyncio.sleep(0.05)
