"""Requests that come while the server loads its environments."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect as connect_socket

from ..support.cold_server import cold_server
from ..support.session_api import Api, api_for, timed

pytestmark = pytest.mark.process

BODY = {"env_name": "late", "split": "train", "index": 0}
KEY = "a-key-of-the-test"


async def held(*work: asyncio.Task[Any]) -> None:
    """None of the requests is answered before a while has passed."""
    done, _ = await asyncio.wait(work, timeout=0.5)
    assert not done, [task.result() for task in done]


async def play(api: Api) -> None:
    assert (await api.post("/create", BODY)).status_code == 200
    assert (await api.call("say")).text == "said"
    await api.delete()


@pytest.mark.conformance("P-6-loading")
@pytest.mark.parametrize("key", ["", KEY])
async def test_a_request_waits_until_the_environments_are_loaded(tmp_path: Path, key: str) -> None:
    settings = {"api_keys": json.dumps([key])} if key else {}
    async with (
        cold_server(tmp_path, load_wait_s="60", **settings) as server,
        api_for(server.url, **({"X-API-Key": key} if key else {})) as api,
    ):
        playing = asyncio.create_task(play(api))
        listing = asyncio.create_task(api.get("/list_environments"))
        await held(playing, listing)
        server.load()
        await playing
        assert (await listing).json() == ["late"]


@pytest.mark.conformance("P-6-loading")
async def test_what_reports_the_state_of_the_server_does_not_wait(tmp_path: Path) -> None:
    async with cold_server(tmp_path, load_wait_s="60") as server, api_for(server.url) as api:
        statuses = {"/health": 200, "/ready": 503, "/version": 200, "/metrics": 200, "/console/": 200}
        found = {path: (await api.http.get(path, timeout=10)).status_code for path in statuses}
        assert found == statuses


@pytest.mark.conformance("P-6-loading")
async def test_a_load_that_takes_longer_is_answered_503(tmp_path: Path) -> None:
    async with cold_server(tmp_path, load_wait_s="0.4") as server, api_for(server.url) as api:
        answers: list[httpx.Response] = []

        async def ask() -> None:
            answers.append(await api.post("/create", BODY))

        assert await timed(ask()) >= 0.4
        assert answers[0].status_code == 503
        assert answers[0].headers["retry-after"] == "2"
        assert answers[0].headers["x-backend-state"] == "starting"
        server.load()
        await asyncio.to_thread(server.process.wait_for_url)
        await play(api)


@pytest.mark.conformance("P-6-loading")
async def test_a_server_that_stops_while_it_loads_lets_nobody_wait(tmp_path: Path) -> None:
    async with cold_server(tmp_path, load_wait_s="60") as server, api_for(server.url) as api:
        waiting = asyncio.create_task(api.post("/create", BODY))
        await held(waiting)
        server.process.signal(signal.SIGTERM)
        assert (await waiting).status_code == 503
        assert await asyncio.to_thread(server.process.wait) == 0


@pytest.mark.conformance("P-6-loading")
async def test_a_socket_waits_too(tmp_path: Path) -> None:
    async with cold_server(tmp_path, "--also", "openenv", load_wait_s="60") as server:
        url = server.url.replace("http", "ws")

        async def reset() -> Any:
            async with connect_socket(f"{url}/ws", open_timeout=60, proxy=None) as sock:
                await sock.send(json.dumps({"type": "reset", "data": {}}))
                return json.loads(await sock.recv())

        resetting = asyncio.create_task(reset())
        await held(resetting)
        server.load()
        assert (await resetting)["type"] == "observation"
