"""The steps of docs/deploy.md with compose, done, played with a released client and with ours.

What containers may do, and what becomes of sessions when a replica or an idle environment dies, is shown in
tests/images/test_compose.py; here an environment dies in the middle of a call.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import docker
import httpx
import pytest
from orsay_client import Client, Fault, WorkerLost

from tests.interop.player import player
from tests.support.author_log import Log
from tests.support.containers import COMPOSE, Compose
from tests.support.engine import image, needs_engine
from tests.support.waiting import until_true

from .commands import Commands

pytestmark = [
    needs_engine,
    pytest.mark.skipif(COMPOSE is None, reason="neither docker-compose nor docker compose is here"),
    pytest.mark.timeout(600),  # the first may build images and install peers
]

OPENREWARD = ("openreward", "0.1.167")
BUNDLED = ["echoenvironment", "guessenvironment", "arithmeticenvironment"]
SERVICE = """
  scripted:
    image: {image}
    init: true
    restart: unless-stopped
    user: "{user}"
    volumes:
      - {folder}:{folder}
    networks:
      - environments
"""
TABLE = """
[environments.scripted]
url = "http://scripted:8080"
serve = ["scripted"]
"""


class Project:
    """A compose project of the page, under a name of its own and at a free port."""

    def __init__(self, commands: Commands, name: str, file: str) -> None:
        self.compose = Compose(commands.folder / file, {})
        self.commands = commands
        self.url = ""
        commands.here(f"-p {name} ", f"-p {self.compose.project} ")

    def run(self) -> None:
        """The next block."""
        self.commands.run(ORSAY_PORT="0", ORSAY_IMAGE=image("server"), HAPROXY_IMAGE=image("haproxy"))

    def hosts(self, names: list[str]) -> bool:
        try:
            return sorted(httpx.get(f"{self.url}/list_environments", timeout=5).json()) == sorted(names)
        except (httpx.HTTPError, ValueError):
            return False


@contextmanager
def project(commands: Commands, name: str, file: str, front: str) -> Iterator[Project]:
    """Up, by the first block; down, by the last one, and then nothing is left."""
    found = Project(commands, name, file)
    with closing(docker.from_env(timeout=60)) as engine:
        try:
            found.run()
            found.url = found.compose.url(front)
            yield found
            found.run()
            assert found.compose.left(engine) == []
        finally:
            if found.compose.left(engine):
                found.compose("down", "--volumes", "--timeout", "1")


@pytest.mark.venv
def test_a_container_for_each_environment_is_played_through_one_address(
    commands: Commands, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    spec = {"log": str(log.path)}
    never = {"gate": log.gate("never")}
    with project(commands, "gateway", "docker/compose.gateway.yaml", "gateway") as gateway:
        until_true(lambda: gateway.hosts(BUNDLED), what="the gateway does not know its environments")
        add_scripted(commands.folder / "docker")
        gateway.run()
        until_true(
            lambda: gateway.hosts([*BUNDLED, "scripted"]), what="the gateway does not know the new one"
        )
        with (
            player(*OPENREWARD, gateway.url) as playing,
            Client(gateway.url) as client,
            ThreadPoolExecutor() as threads,
            client.environment("guessenvironment").session(split="train", index=0) as guess,
            client.environment("scripted").session(task_spec=spec) as scripted,
        ):
            won = playing.play("episode", "echoenvironment", calls=[["echo", {"text": "hello"}]])
            assert won["outputs"][0]["value"]["reward"] == 1.0
            theirs = threads.submit(
                playing.play, "episode", "scripted", by="task", spec=spec, calls=[["first", never]] * 2
            )
            ours = threads.submit(scripted.call, "first", never)
            until_true(lambda: log.count("first+") == 2)
            crash(gateway.compose, "scripted")
            with pytest.raises(WorkerLost):
                ours.result(timeout=60)
            in_mid_call, after = theirs.result(timeout=60)["outputs"]
            assert in_mid_call["type"] and after["type"] == "SessionTerminatedError"
            assert guess.call("guess", {"number": 50}).blocks, "it is not disturbed"
            until_true(lambda: plays(client, "scripted"), timeout_s=60, what="it does not come back")


def add_scripted(folder: Path) -> None:
    """As the page says: a service more, and a table more."""
    service = SERVICE.format(
        image=image("scripted"), user=f"{os.getuid()}:{os.getgid()}", folder=tempfile.gettempdir()
    )
    file = folder / "compose.gateway.yaml"
    before, networks, after = file.read_text().partition("\nnetworks:\n")
    assert networks
    file.write_text(f"{before}{service}{networks}{after}")
    with (folder / "gateway" / "orsay.toml").open("a") as table:
        table.write(TABLE)


def crash(compose: Compose, service: str) -> None:
    """End the server in the container, and the container with it, which compose starts again."""
    with closing(docker.from_env(timeout=60)) as engine:
        found = compose.container(engine, service)
        found.exec_run(["sh", "-c", "kill -9 -1"])
        until_true(lambda: found.reload() or found.attrs["RestartCount"] == 1, timeout_s=30)


def plays(client: Client, name: str) -> bool:
    """Whether a new session can be won; faults while it starts again are to be expected."""
    try:
        with client.environment(name).session(task_spec={}) as session:
            return session.call("win").reward == 1.0
    except Fault:
        return False


@pytest.mark.venv
def test_replicas_are_one_server_to_a_client(commands: Commands) -> None:
    with project(commands, "replicas", "docker/compose.replicas.yaml", "haproxy") as replicas:
        until_true(lambda: replicas.hosts([*BUNDLED, "doorsenvironment"]), what="HAProxy does not answer")
        with player(*OPENREWARD, replicas.url) as playing:
            for _ in range(6):
                won = playing.play(
                    "episode", "echoenvironment", calls=[["hint", {}], ["echo", {"text": "hello"}]]
                )
                assert won["outputs"][1]["value"]["reward"] == 1.0
