"""What the docker runtime shows of its containers, and the trace that leads into one."""

from __future__ import annotations

import asyncio
from contextlib import closing

import docker
from orsay.observe.names import RUNTIME_METRICS
from orsay.runtimes.base import OpenSession, Runtime
from orsay.runtimes.docker.engine import Engine
from orsay_protocol.trace import new_trace

from ..engine import needs_engine
from ..runtimes.stand import Player
from .stand import SHORT, OwnServer, running, where, worlds

pytestmark = needs_engine


def figures(runtime: Runtime) -> dict[str, float]:
    """By name, and state where there is one."""
    found = {}
    for gauge in runtime.gauges():  # type: ignore[attr-defined]  # not every runtime shows figures
        assert gauge.labels["place"] == "box"
        assert set(gauge.labels) == set(RUNTIME_METRICS[gauge.name].labels)
        found[" ".join(filter(None, [gauge.name, gauge.labels.get("state")]))] = float(gauge.value)
    return found


async def opened(runtime: Runtime, trace: str) -> Player:
    player = Player()
    player.handle = await runtime.open(OpenSession(key="world", task_spec={}, trace=trace), player)
    assert await player.ready() is None
    return player


async def test_containers_are_counted_and_their_logs_tell_the_trace(engine: Engine, own: OwnServer) -> None:
    variables = {**SHORT, "ORSAY_RUNTIME": "local", "ORSAY_LOG_LEVEL": "info", "ORSAY_LOG_FORMAT": "json"}
    trace = new_trace()
    async with running(worlds(spare=1, variables=variables), own, label="box") as runtime:
        player = await opened(runtime, trace)
        found = figures(runtime)
        assert (found["containers active"], found["containers spare"]) == (1, 1)
        assert (found["containers_wanted"], found["containers_up"]) == (2, 2)
        assert (found["container_sessions"], found["containers_lost"]) == (1, 0)
        home = await where(player)
        await player.close()
        with closing(docker.from_env()) as client:
            container = await asyncio.to_thread(client.containers.get, home)
            async with asyncio.timeout(60):
                while trace.encode() not in await asyncio.to_thread(container.logs):
                    await asyncio.sleep(0.1)
        await engine.kill(home)
        async with asyncio.timeout(60):
            while figures(runtime)["containers_lost"] != 1 or figures(runtime)["containers_up"] != 2:
                await asyncio.sleep(0.1)
        assert figures(runtime)["containers_started"] == 3
