"""What the docker runtime shows of its containers, and the trace that leads into one."""

from __future__ import annotations

import asyncio
from contextlib import closing

import docker
from orsay.observe.names import RUNTIME_METRICS
from orsay.runtimes.base import OpenSession, Runtime
from orsay.runtimes.docker.engine import Engine
from orsay_protocol.trace import new_trace

from ..support.docker_runtime import SHORT, OwnServer, running, scripted_options, where
from ..support.engine import needs_engine
from ..support.runtime_session import RuntimeSession

pytestmark = needs_engine


def gauge_values(runtime: Runtime) -> dict[str, float]:
    """By name, and state where there is one."""
    found = {}
    for gauge in runtime.gauges():  # type: ignore[attr-defined]  # not every runtime has metrics
        assert gauge.labels["runtime"] == "box"
        assert set(gauge.labels) == set(RUNTIME_METRICS[gauge.name].labels)
        found[" ".join(filter(None, [gauge.name, gauge.labels.get("state")]))] = float(gauge.value)
    return found


async def opened(runtime: Runtime, trace: str) -> RuntimeSession:
    player = RuntimeSession()
    player.handle = await runtime.open(OpenSession(key="scripted", task_spec={}, trace=trace), player)
    assert await player.ready() is None
    return player


async def test_containers_are_counted_and_their_logs_have_the_trace(engine: Engine, own: OwnServer) -> None:
    variables = {**SHORT, "ORSAY_RUNTIME": "local", "ORSAY_LOG_LEVEL": "info", "ORSAY_LOG_FORMAT": "json"}
    trace = new_trace()
    async with running(scripted_options(spare=1, variables=variables), own, label="box") as runtime:
        player = await opened(runtime, trace)
        found = gauge_values(runtime)
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
            while (
                gauge_values(runtime)["containers_lost"] != 1 or gauge_values(runtime)["containers_up"] != 2
            ):
                await asyncio.sleep(0.1)
        assert gauge_values(runtime)["containers_started"] == 3
