"""Whole servers with containers behind them: asleep and awake, stopped, killed, and side by side."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from orsay.runtimes.docker.engine import Engine

from ..support.docker_runtime import OwnServer, own_server, running, scripted_options, where
from ..support.engine import image, needs_engine
from ..support.runtime_session import open_session
from ..support.server_process import ServerProcess, server
from ..support.session_api import Api, api_for

pytestmark = needs_engine


@contextmanager
def scripted_server(own: OwnServer, folder: Path, **options: Any) -> Iterator[ServerProcess]:
    """``orsay serve`` of containers of the scripted environments, with these options in its file."""
    file = folder / f"{own.id}.toml"
    lines = [f"{name} = {str(value).lower()}" for name, value in options.items()]
    text = [
        "[environments.scripted]",
        f'image = "{image("scripted")}"',
        *lines,
        'variables = { ORSAY_LOG_LEVEL = "warning", ORSAY_RUNTIME = "local" }',
    ]
    file.write_text("\n".join(text))
    config = ("--config", str(file))
    with server(*config, server_name=own.id) as process:
        yield process


async def create(api: Api) -> int:
    answer = await api.post("/create", {"env_name": "scripted", "task_spec": {}})
    return answer.status_code


async def until_count(own: OwnServer, count: int, *, timeout_s: float = 30) -> None:
    """Until so many containers are there, in whatever state."""
    async with asyncio.timeout(timeout_s):
        while len(await own.containers()) != count:
            await asyncio.sleep(0.05)


async def test_unused_containers_stop_and_the_first_request_starts_them_again(
    own: OwnServer, tmp_path: Path
) -> None:
    with scripted_server(own, tmp_path, idle_s=2) as process:
        async with api_for(process.url) as api:
            await api.create()
            await asyncio.sleep(3)
            assert len(await own.running()) == 1  # a session keeps it awake
            assert (await api.call("say", text="awake")).text == "awake"
            await api.post("/delete")
            await until_count(own, 0)
            tools = await api.get("/scripted/tools")  # what is known needs no container
            assert tools.status_code == 200 and tools.json()["tools"]
            assert await own.containers() == []
            other = api.other()
            answer = await other.post("/create", {"env_name": "scripted", "task_spec": {}})
            assert (answer.status_code, answer.headers["x-backend-state"]) == (503, "starting")
            assert int(answer.headers["retry-after"]) >= 1
            assert "are being started" in answer.json()["detail"]
            async with asyncio.timeout(30):
                while await create(other) == 503:
                    await asyncio.sleep(0.1)
            assert (await other.call("say", text="back")).text == "back"


async def test_a_server_that_stops_leaves_nothing(own: OwnServer, tmp_path: Path) -> None:
    with scripted_server(own, tmp_path, network='"isolated"', replicas=2) as process:
        async with api_for(process.url) as api:
            await api.create()
        assert len(await own.running()) == 2
        assert len(await own.networks()) == 1
        process.signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == 0
        assert await own.containers() == []
        assert await own.networks() == []


async def test_containers_of_a_killed_server_end_by_themselves(own: OwnServer, tmp_path: Path) -> None:
    with scripted_server(own, tmp_path, lease_s=4) as process:
        await asyncio.sleep(6)
        assert len(await own.running()) == 1  # longer than a lease, which was renewed
        process.signal(signal.SIGKILL)
        killed_at = time.monotonic()
        await own.until_gone(timeout_s=30)
        assert time.monotonic() - killed_at > 1


async def test_the_next_server_removes_what_a_killed_one_left(own: OwnServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        killed = stack.enter_context(scripted_server(own, tmp_path, replicas=2, network='"isolated"'))
        left = {each["Id"] for each in await own.running()}
        assert len(left) == 2
        killed.signal(signal.SIGKILL)
        await asyncio.to_thread(killed.wait)
        assert {each["Id"] for each in await own.running()} == left
        stack.enter_context(scripted_server(own, tmp_path))
        now = [each["Id"] for each in await own.containers()]
        assert len(now) == 1 and now[0] not in left
        assert await own.networks() == []


async def test_servers_of_different_ids_leave_each_other_alone(
    engine: Engine, own: OwnServer, tmp_path: Path
) -> None:
    async with own_server(engine) as other:
        with scripted_server(own, tmp_path) as process:
            mine = [each["Id"] for each in await own.running()]
            with scripted_server(other, tmp_path) as second:
                second.signal(signal.SIGKILL)
                await asyncio.to_thread(second.wait)
            with scripted_server(other, tmp_path):
                pass
            assert await other.containers() == []
            assert [each["Id"] for each in await own.running()] == mine
            async with api_for(process.url) as api:
                await api.create()


async def test_two_that_live_under_one_id_leave_each_other_alone(own: OwnServer) -> None:
    """As one server with two entries, or while a file is read again."""
    async with running(scripted_options(), own, label="one") as one:
        player = await open_session(one)
        place = await where(player)
        async with running(scripted_options(network="isolated"), own, label="two") as two:
            assert await where(await open_session(two)) != place
            assert len(await own.running()) == 2
        assert await where(player) == place
        assert await own.networks() == []


@pytest.mark.parametrize("network", ["bridge", "isolated"])
async def test_stopping_while_containers_start_leaves_nothing(own: OwnServer, network: str) -> None:
    async def start() -> None:
        async with running(scripted_options(replicas=2, network=network), own):
            raise AssertionError("it was to be stopped before")

    for delay_s in (0.0, 0.02, 0.2, 0.6):
        starting = asyncio.create_task(start())
        await asyncio.sleep(delay_s)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert await own.containers() == []
        assert await own.networks() == []
