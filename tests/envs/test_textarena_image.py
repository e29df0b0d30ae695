"""The image of envs/textarena, as ``orsay build`` makes it, run by ``orsay serve`` and by compose."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress

import docker
import httpx
import pytest
from docker.errors import APIError, ImageNotFound
from orsay_client import AsyncClient, Client
from orsay_protocol import TextBlock
from textarena_env.catalog import GAMES, GAMES_BY_NAME
from textarena_env.policy import play

from tests.interop.servers import serve
from tests.support.containers import BUNDLED, COMPOSE, Compose, compose, ready, win
from tests.support.engine import BASE, ROOT, image, needs_engine
from tests.support.waiting import until_true

pytestmark = [needs_engine, pytest.mark.timeout(900)]

TAG = "orsay-test-textarena:latest"
SPLIT = "GuessTheNumber-v0-train"


@pytest.fixture(scope="module")
def built() -> Iterator[str]:
    """The image, on the base image of this source. The engine keeps it, for the next time."""
    with closing(docker.from_env(timeout=60)) as client:
        before = _id(client)
        command = ["build", "envs/textarena", "--base", image("base"), "--tag", TAG, "--orsay", "orsay"]
        done = subprocess.run(
            [sys.executable, "-m", "orsay", *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[-4000:]
        if before not in (None, _id(client)):
            with suppress(APIError):  # a container of another run may still need it
                client.images.remove(before)
    yield TAG


def _id(client: docker.DockerClient) -> str | None:
    try:
        return str(client.images.get(TAG).id)
    except ImageNotFound:
        return None


def test_orsay_serve_runs_the_image_and_every_game_in_it_can_be_played(built: str) -> None:
    # Quietly: what the container prints would be among the lines in which ``serve`` looks for the URL.
    with serve(built, runtime="docker", options=("--log-level", "warning")) as server:
        until_true(lambda: ready(server.url), what=server.everything)
        with Client(server.url) as client:
            environment = client.environment("textarena")
            for index, game in enumerate(GAMES):
                with environment.session(split="train", index=index) as session:
                    (rules,) = session.prompt()
                    assert isinstance(rules, TextBlock)
                    assert "the tool `act`" in rules.text
                    assert not session.call("act", {"action": "no"}).finished
                    end = session.call("act", {"action": "no"})
                    assert end.finished
                    assert end.reward is not None
                    assert game.lowest <= end.reward <= game.highest
                    assert end.metadata is not None
                    assert (end.metadata["game"], end.metadata["invalid_move"]) == (game.name, True)


def test_the_network_is_not_needed(built: str) -> None:
    with closing(docker.from_env(timeout=60)) as client:
        code = (
            "from textarena_env.catalog import GAMES; from textarena_env.match import Match\n"
            "print(sum(len(Match(game, 1).opening) > 100 for game in GAMES))"
        )
        logs = client.containers.run(
            built,
            ["python", "-c", code],
            network_mode="none",
            read_only=True,
            remove=True,
            labels=["orsay.test"],
        )
    assert int(logs) == len(GAMES_BY_NAME)


@pytest.fixture(scope="module")
def project() -> Iterator[Compose]:
    if COMPOSE is None:
        pytest.skip("no docker compose")
    images = {"ORSAY_BASE": BASE, "ORSAY_IMAGE": image("server"), "TEXTARENA_IMAGE": image("textarena")}
    with compose("docker/compose.textarena.yaml", **images) as project:
        yield project


async def test_one_gateway_hosts_it_beside_the_bundled_ones(project: Compose) -> None:
    url = project.url("gateway")
    names = ["echoenvironment", "guessenvironment", "arithmeticenvironment", "textarena"]
    until_true(lambda: ready(url) and _names(url) == names, what=f"the gateway has {_names(url)}")
    for name in names[:3]:
        await win(url, name, BUNDLED[name])
    async with AsyncClient(url) as client:
        environment = client.environment("textarena")
        assert await environment.tasks(SPLIT).count() == 10_000
        for index in range(3):
            async with environment.session(split=SPLIT, index=index) as session:
                await play(session)
                assert session.finished
                assert session.reward == 1.0


def test_only_the_gateway_can_be_reached(project: Compose) -> None:
    with closing(docker.from_env(timeout=60)) as client:
        for service in ("echo", "guess", "arithmetic", "textarena"):
            settings = project.container(client, service).attrs["NetworkSettings"]
            assert not any(settings["Ports"].values()), service
            assert list(settings["Networks"]) == [f"{project.project}_environments"], service


def test_down_leaves_nothing(project: Compose) -> None:
    project("down", "--volumes", "--timeout", "20")
    with closing(docker.from_env(timeout=60)) as client:
        assert project.left(client) == []


def _names(url: str) -> list[str]:
    try:
        return list(httpx.get(f"{url}/list_environments", timeout=5).json())
    except (httpx.HTTPError, ValueError):
        return []
