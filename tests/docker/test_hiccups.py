"""An engine that goes away for a while under containers that go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import structlog
from orsay.runtimes.docker.engine import Engine

from ..engine import image, needs_engine
from ..runtimes.stand import open_session
from .stand import Border, OwnServer, border, running, where, worlds

pytestmark = needs_engine


@pytest_asyncio.fixture
async def way(own: OwnServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Border]:
    """All engines from here on are reached through it; the test's own was before."""
    image("worlds")  # built, if need be, on the straight way: it blocks, and the border is served here
    async with border() as made:
        monkeypatch.setenv("DOCKER_HOST", made.url)
        yield made


async def test_sessions_and_leases_outlive_a_broken_connection(own: OwnServer, way: Border) -> None:
    async with running(worlds(lease_s=4), own) as runtime:
        player = await open_session(runtime)
        place = await where(player)
        way.cut()
        await asyncio.sleep(8)  # two leases
        assert await where(player) == place
        assert player.losses == []
        await player.close()


async def test_an_end_while_the_engine_was_away_is_noticed_when_it_is_back(
    engine: Engine, own: OwnServer, way: Border
) -> None:
    async with running(worlds(), own) as runtime:
        player = await open_session(runtime)
        place = await where(player)
        way.closed = True
        way.cut()
        await engine.kill(place)
        await asyncio.sleep(1)
        way.closed = False
        assert await player.is_lost() == ("worker_lost", "the container was ended by signal 9")
        async with asyncio.timeout(30):
            while not await own.running():
                await asyncio.sleep(0.1)


async def test_what_is_written_after_a_broken_connection_is_in_the_log(own: OwnServer, way: Border) -> None:
    variables = {"ORSAY_LOG_LEVEL": "info"}
    with structlog.testing.capture_logs() as lines:
        async with running(worlds(variables=variables), own) as runtime:
            way.cut()
            await asyncio.sleep(2)
            player = await open_session(runtime)
            await player.close()
            async with asyncio.timeout(10):
                while not any("session_ended" in line.get("line", "") for line in lines):
                    await asyncio.sleep(0.05)
