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
from orsay_client import AsyncClient, Fault

from tests.support.engine import BASE, image, needs_engine

from ..support.containers import BUNDLED, COMPOSE, Compose, compose, ready, win
from ..support.waiting import until_true

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
        until_true(
            lambda: hosts(project.url("gateway"), 3), what="the gateway does not know its environments"
        )
        yield project
    assert project.left(engine) == []


@pytest.fixture(scope="module")
def replicas(engine: Any) -> Iterator[Compose]:
    variables = {"ORSAY_IMAGE": image("scripted"), "HAPROXY_IMAGE": image("haproxy")}
    with compose("docker/compose.replicas.yaml", **variables) as project:
        until_true(lambda: served_by(project.url("haproxy")) == 3, what="HAProxy does not know its replicas")
        yield project
    assert project.left(engine) == []


def hosts(url: str, count: int) -> bool:
    return ready(url) and len(httpx.get(f"{url}/list_environments").json()) == count


def served_by(url: str) -> int:
    """How many servers take requests without a session."""
    return len({httpx.get(f"{url}/health").headers.get("X-Served-By") for _ in range(6)} - {None})


@dataclass
class Episode:
    """A session through HAProxy, request by request."""

    sid: str
    http: httpx.AsyncClient
    served_by: str = ""

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.http.request(method, path, headers={"X-Session-ID": self.sid}, **options)

    async def open(self) -> str:
        body = {"env_name": "scripted", "split": "train", "index": 0}
        answer = await self.ask("POST", "/create", json=body)
        assert answer.status_code == 200, answer.text
        self.served_by = answer.headers["X-Served-By"]
        return self.served_by

    async def call(self) -> httpx.Response:
        return await self.ask("POST", "/scripted/call", json={"name": "say", "input": {"text": self.sid}})


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
            prompt = await episode.ask("GET", "/scripted/prompt")
            called = await episode.call()
            assert (prompt.status_code, called.status_code) == (200, 200)
            assert prompt.headers["X-Served-By"] == called.headers["X-Served-By"] == episode.served_by
            assert episode.sid in called.text


async def test_a_stream_through_haproxy_starts_before_the_tool_ends(replicas: Compose) -> None:
    async with httpx.AsyncClient(base_url=replicas.url("haproxy"), timeout=60) as http:
        episode = Episode("stream", http)
        await episode.open()
        body = {"name": "say_later", "input": {"text": "at last", "seconds": 2}}
        headers = {"X-Session-ID": episode.sid}
        async with http.stream("POST", "/scripted/call", json=body, headers=headers) as answer:
            pieces = [piece async for piece in answer.aiter_text()]
    assert "event: task_id" in pieces[0] and "at last" not in pieces[0]
    assert "at last" in "".join(pieces[1:])


async def test_a_replica_that_dies_takes_only_its_own_sessions_along(engine: Any, replicas: Compose) -> None:
    url = replicas.url("haproxy")
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        before = await opened(http, "before")
        dead = replicas.container(engine, "replica2")
        dead.kill()  # by hand, so that it stays away
        for episode in before:
            answer = await episode.call()
            if episode.served_by == "replica2":
                assert answer.status_code in (404, 503), answer.text
                assert answer.json()["detail"]
            else:
                assert answer.status_code == 200 and episode.sid in answer.text
        meanwhile = await opened(http, "meanwhile")
        assert {episode.served_by for episode in meanwhile} == {"replica1", "replica3"}
        dead.start()
        until_true(lambda: served_by(url) == 3, what="the replica did not come back")
        for episode in meanwhile:
            answer = await episode.call()
            assert answer.status_code == 200 and answer.headers["X-Served-By"] == episode.served_by
        assert "replica2" in {episode.served_by for episode in await opened(http, "after")}


async def test_calls_under_way_on_a_replica_that_dies_are_faults_and_the_others_are_answered(
    engine: Any, replicas: Compose
) -> None:
    url = replicas.url("haproxy")
    until_true(lambda: served_by(url) == 3)
    async with AsyncClient(url) as client, contextlib.AsyncExitStack() as stack, httpx.AsyncClient() as http:
        places: dict[str, Any] = {}
        while len(places) < 3:
            session = await stack.enter_async_context(
                client.environment("scripted").session(split="train", index=0)
            )
            answer = await http.get(f"{url}/scripted/prompt", headers={"X-Session-ID": session.sid})
            places.setdefault(answer.headers["X-Served-By"], session)
        calls = {
            name: asyncio.create_task(session.call("say_later", {"text": name, "seconds": 8}))
            for name, session in places.items()
        }
        await asyncio.sleep(1)  # all calls run; nothing shows it from outside
        crash(replicas.container(engine, "replica3"))
        with pytest.raises(Fault):
            await calls.pop("replica3")
        for name, call in calls.items():
            assert getattr((await call).blocks[0], "text", "") == name


def test_one_command_builds_and_starts_the_server(engine: Any) -> None:
    tag = "orsay-test-compose:latest"
    variables = {"ORSAY_IMAGE": tag, "ORSAY_BASE": BASE}
    try:
        with compose("compose.yaml", **variables) as project:
            url = project.url("server")
            until_true(lambda: ready(url), what="the server of compose.yaml is not ready")
            for environment, policy in BUNDLED.items():
                asyncio.run(win(url, environment, policy))
            project("stop", "--timeout", "40")
            assert project.container(engine, "server").attrs["State"]["ExitCode"] == 0
        assert project.left(engine) == []
    finally:
        with contextlib.suppress(NotFound):
            engine.images.remove(tag)


def crash(found: Any) -> None:
    """Kill all that runs in a container, as a crash would, and wait until it was started again."""
    restarts = found.attrs["RestartCount"]
    found.exec_run(["bash", "-c", "kill -9 -1"])

    def came_back() -> bool:
        found.reload()
        return bool(found.attrs["RestartCount"] > restarts)

    until_true(came_back, timeout_s=30, what="the container was not started again")
