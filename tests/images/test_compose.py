"""The compose files, on a real engine: up, played, hurt, and down without a trace."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import docker
import httpx
import pytest
from docker.errors import NotFound

from tests.engine import BASE, image, needs_engine

from .stand import BUNDLED, COMPOSE, Compose, compose, ready, until, win

pytestmark = [
    needs_engine,
    pytest.mark.skipif(COMPOSE is None, reason="neither docker-compose nor docker compose is here"),
    pytest.mark.timeout(900),
]

SESSIONS = 50
HOSTED = ("echoenvironment", "guessenvironment", "arithmeticenvironment")


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    client = docker.from_env(timeout=120)
    yield client
    client.close()


@pytest.fixture(scope="module")
def gateway(engine: Any) -> Iterator[Compose]:
    with compose("docker/compose.gateway.yaml", ORSAY_IMAGE=image("server")) as project:
        until(lambda: hosts(project.url("gateway"), 3), what="the gateway does not know its environments")
        yield project
    assert project.left(engine) == []


@pytest.fixture(scope="module")
def replicas(engine: Any) -> Iterator[Compose]:
    variables = {"ORSAY_IMAGE": image("server"), "HAPROXY_IMAGE": image("haproxy")}
    with compose("docker/compose.replicas.yaml", **variables) as project:
        until(lambda: served_by(project.url("haproxy")) == 3, what="HAProxy does not know its replicas")
        yield project
    assert project.left(engine) == []


def hosts(url: str, count: int) -> bool:
    return ready(url) and len(httpx.get(f"{url}/list_environments").json()) == count


def served_by(url: str) -> int:
    """How many servers take requests without a session."""
    return len({httpx.get(f"{url}/health").headers.get("X-Served-By") for _ in range(6)} - {None})


@dataclass
class Episode:
    """A session of the echo environment through HAProxy, request by request."""

    sid: str
    http: httpx.AsyncClient
    served_by: str = ""

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.http.request(method, path, headers={"X-Session-ID": self.sid}, **options)

    async def open(self) -> str:
        body = {"env_name": "echoenvironment", "split": "train", "index": 0}
        answer = await self.ask("POST", "/create", json=body)
        assert answer.status_code == 200, answer.text
        self.served_by = answer.headers["X-Served-By"]
        return self.served_by

    async def call(self) -> httpx.Response:
        body = {"name": "echo", "input": {"text": "not the word"}}
        return await self.ask("POST", "/echoenvironment/call", json=body)


async def opened(http: httpx.AsyncClient, names: str) -> list[Episode]:
    episodes = [Episode(f"{names}-{number}", http) for number in range(SESSIONS)]
    await asyncio.gather(*(episode.open() for episode in episodes))
    return episodes


def test_containers_may_do_little_and_come_back(engine: Any, gateway: Compose, replicas: Compose) -> None:
    services = [(gateway, name) for name in ("gateway", "echo", "guess", "arithmetic")]
    services += [(replicas, name) for name in ("haproxy", "replica1", "replica2", "replica3")]
    for project, name in services:
        host = project.container(engine, name).attrs["HostConfig"]
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"], name
        assert host["SecurityOpt"] == ["no-new-privileges:true"], name
        assert host["Memory"] > 0 and host["PidsLimit"] > 0, name
        assert host["RestartPolicy"]["Name"] == "unless-stopped", name


def test_only_the_fronts_are_published_and_only_on_loopback(
    engine: Any, gateway: Compose, replicas: Compose
) -> None:
    for project, front in ((gateway, "gateway"), (replicas, "haproxy")):
        containers = engine.containers.list(
            filters={"label": f"com.docker.compose.project={project.project}"}
        )
        published = {
            found.labels["com.docker.compose.service"]: {
                bound["HostIp"]
                for bounds in found.attrs["NetworkSettings"]["Ports"].values()
                for bound in bounds or []
            }
            for found in containers
        }
        assert {name for name, addresses in published.items() if addresses} == {front}
        assert published[front] == {"127.0.0.1"}


def test_what_is_behind_the_gateway_has_no_way_out(engine: Any, gateway: Compose) -> None:
    found = gateway.container(engine, "echo")
    networks = [engine.networks.get(name) for name in found.attrs["NetworkSettings"]["Networks"]]
    assert [network.attrs["Internal"] for network in networks] == [True]
    code = "import socket; socket.create_connection(('192.0.2.1', 80), 2)"
    assert found.exec_run(["python", "-c", code]).exit_code == 1


@pytest.mark.parametrize("environment", HOSTED)
async def test_the_gateway_plays_the_environment_of_each_container(
    gateway: Compose, environment: str
) -> None:
    await win(gateway.url("gateway"), environment, BUNDLED[environment])


async def test_an_environment_that_crashed_is_played_again_by_and_by(engine: Any, gateway: Compose) -> None:
    crash(gateway.container(engine, "guess"))
    url = gateway.url("gateway")
    await win(url, "echoenvironment", BUNDLED["echoenvironment"])
    await win(url, "guessenvironment", BUNDLED["guessenvironment"])


async def test_a_session_stays_on_its_replica_and_every_replica_has_some(replicas: Compose) -> None:
    async with httpx.AsyncClient(base_url=replicas.url("haproxy"), timeout=60) as http:
        episodes = await opened(http, "stay")
        assert set(Counter(episode.served_by for episode in episodes)) == {"replica1", "replica2", "replica3"}
        for episode in episodes:
            prompt = await episode.ask("GET", "/echoenvironment/prompt")
            called = await episode.call()
            assert (prompt.status_code, called.status_code) == (200, 200)
            assert prompt.headers["X-Served-By"] == called.headers["X-Served-By"] == episode.served_by
            assert "no match" in called.text


async def test_a_replica_that_dies_takes_only_its_own_sessions_along(engine: Any, replicas: Compose) -> None:
    url = replicas.url("haproxy")
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        before = await opened(http, "before")
        crash(replicas.container(engine, "replica2"))
        for episode in before:
            answer = await episode.call()
            if episode.served_by == "replica2":
                assert answer.status_code in (404, 503), answer.text
                assert answer.json()["detail"]
            else:
                assert answer.status_code == 200 and "no match" in answer.text
        meanwhile = await opened(http, "meanwhile")
        until(lambda: served_by(url) == 3, what="the replica did not come back")
        for episode in meanwhile:
            assert "no match" in (await episode.call()).text
        assert "replica2" in {episode.served_by for episode in await opened(http, "after")}


async def test_through_haproxy_every_environment_is_played(replicas: Compose) -> None:
    for environment, policy in BUNDLED.items():
        await win(replicas.url("haproxy"), environment, policy)


def test_one_command_builds_and_starts_the_server(engine: Any) -> None:
    tag = "orsay-test-compose:latest"
    variables = {"ORSAY_IMAGE": tag, "ORSAY_BASE": BASE}
    try:
        with compose("compose.yaml", **variables) as project:
            url = project.url("server")
            until(lambda: ready(url), what="the server of compose.yaml is not ready")
            for environment, policy in BUNDLED.items():
                asyncio.run(win(url, environment, policy))
            project("stop", "--timeout", "40")
            assert project.container(engine, "server").attrs["State"]["ExitCode"] == 0
        assert project.left(engine) == []
    finally:
        with contextlib.suppress(NotFound):
            engine.images.remove(tag)


def crash(found: Any) -> None:
    """End every process of a container but the first, whose life depends on them, as a crash would."""
    pids = {pid for pid, *_ in found.top(ps_args="-eo pid,args")["Processes"]}
    found.exec_run(["bash", "-c", "kill -9 -1"])

    def ended() -> bool:
        found.reload()
        return found.status != "running" or not pids & {
            pid for pid, *_ in found.top(ps_args="-eo pid,args")["Processes"]
        }

    until(ended, timeout_s=20, what="the container goes on")
