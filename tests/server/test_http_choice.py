"""Which environment a request without an environment in its path means."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from orsay import Environment, Server, tool
from orsay.settings import Settings

pytestmark = pytest.mark.process


class First(Environment):
    """The default."""

    splits = {"train": [{"of": "first"}]}  # the short spelling

    def prompt(self) -> str:
        return "first"

    @tool
    def one(self) -> str:
        """One."""
        return "1"


class Second(First):
    """Another."""

    splits = {"train": [{"of": "second"}]}

    def prompt(self) -> str:
        return "second"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(port=0, runtime="local")
    async with (
        Server([First, Second]).running(settings) as running,
        httpx.AsyncClient(base_url=running.url, trust_env=False) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        (None, "first"),
        ("second", "second"),
        ("Owner/Second", "second"),
        ("somebody/else", "first"),
        ("", "first"),
    ],
)
async def test_the_deployment_that_clients_send_chooses_where_nothing_else_does(
    client: httpx.AsyncClient, deployment: str | None, expected: str
) -> None:
    headers = {} if deployment is None else {"X-Deployment": deployment}
    task = await client.post("/task", json={"split": "train", "index": 0}, headers=headers)
    assert task.json() == {"task": {"of": expected}, "env_name": expected}

    session = {"X-Session-ID": "s", **headers}
    await client.post("/create", json={"split": "train", "index": 0}, headers=session)
    assert (await client.get("/prompt", headers=session)).json()[0]["text"] == expected


async def test_a_name_in_the_path_or_body_goes_before_the_deployment(client: httpx.AsyncClient) -> None:
    headers = {"X-Deployment": "second", "X-Session-ID": "s"}
    task = await client.post("/FIRST/task", json={"split": "train", "index": 0}, headers=headers)
    assert task.json()["task"] == {"of": "first"}
    await client.post("/create", json={"env_name": "First", "split": "train", "index": 0}, headers=headers)
    assert (await client.get("/second/prompt", headers=headers)).json()[0]["text"] == "first"


async def test_a_server_that_stops_is_not_ready() -> None:
    settings = Settings(port=0, runtime="local")
    async with Server([First]).running(settings) as running, httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{running.url}/ready")).status_code == 200
        running.sessions.refuse_new()
        answer = await client.get(f"{running.url}/ready")
        assert (answer.status_code, answer.headers["x-orsay-fault"]) == (503, "shutdown")
        assert (await client.get(f"{running.url}/health")).status_code == 200
