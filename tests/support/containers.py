"""Containers and compose projects for tests, played by the scripted players of the environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import httpx
from arithmetic_env import policy as arithmetic
from doors_env import policy as doors
from echo_env import policy as echo
from guess_env import policy as guess
from orsay_client import AsyncClient

from .engine import ROOT
from .waiting import until_true

__all__ = [
    "BUNDLED",
    "COMPOSE",
    "HARDENED",
    "Compose",
    "compose",
    "container",
    "ready",
    "serving",
    "win",
]

STOP_LIMIT_S = 90.0
LABEL = "orsay.test"

Policy = Callable[..., Awaitable[float]]

BUNDLED: Mapping[str, Policy] = {
    "echoenvironment": echo.play,
    "guessenvironment": guess.play,
    "arithmeticenvironment": arithmetic.play,
    "doorsenvironment": doors.play,
}

HARDENED: Mapping[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "mem_limit": "1g",
    "pids_limit": 512,
}
"""What a cautious person runs containers with; no writable place at all, not even /tmp."""


def ready(url: str, path: str = "/ready") -> bool:
    """Whether a server there says that sessions can be opened."""
    try:
        return httpx.get(f"{url}{path}", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


async def win(url: str, environment: str, policy: Policy, *, index: int = 0) -> None:
    """Play one episode, and expect that it ends with reward 1."""
    async with (
        AsyncClient(url) as client,
        client.environment(environment).session(split="train", index=index) as session,
    ):
        await policy(session)
        assert session.finished and session.reward == 1.0


@contextmanager
def container(image: str, command: list[str] | None = None, **options: Any) -> Iterator[Any]:
    """A container of the image, with its port 8080 on a free one of loopback; removed at the end."""
    client = docker.from_env(timeout=120)
    found = None
    try:
        found = client.containers.run(
            image, command, detach=True, ports={"8080/tcp": ("127.0.0.1", None)}, labels=[LABEL], **options
        )
        yield found
    finally:
        if found is not None:
            found.remove(force=True, v=True)
        client.close()


def serving(found: Any) -> str:
    """Where a container serves, once sessions can be opened there. Fails, with its log, if it ends."""

    def answers() -> str | None:
        found.reload()
        assert found.status != "exited", found.logs().decode(errors="replace")
        bindings = found.attrs["NetworkSettings"]["Ports"].get("8080/tcp")
        url = f"http://127.0.0.1:{bindings[0]['HostPort']}" if bindings else None
        return url if url is not None and ready(url) else None

    return str(until_true(answers, what="the container does not serve"))


def _compose_command() -> list[str] | None:
    """Compose 1.29, which is not run to find out: that takes half a second in each process; or 2.x."""
    if shutil.which("docker-compose") is not None:
        return ["docker-compose"]
    if shutil.which("docker") is not None:
        command = ["docker", "compose"]
        done = subprocess.run([*command, "version"], capture_output=True, timeout=30, check=False)
        return command if done.returncode == 0 else None
    return None


COMPOSE = _compose_command()


@dataclass
class Compose:
    """A compose file under a project name of its own."""

    file: Path
    variables: Mapping[str, str]
    project: str = field(default_factory=lambda: f"orsaytest{uuid.uuid4().hex[:8]}")
    program: Sequence[str] = tuple(COMPOSE or ())

    def __call__(self, *arguments: str, limit_s: float = 300.0) -> str:
        """What a command prints. Raises RuntimeError when it fails."""
        done = subprocess.run(
            [*self.program, "-p", self.project, "-f", str(self.file), *arguments],
            env={**os.environ, "DOCKER_BUILDKIT": "0", **self.variables},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"compose {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def url(self, service: str) -> str:
        """Where the published port of a service is."""
        return f"http://{self('port', service, '8080').strip()}"

    def container(self, client: Any, service: str) -> Any:
        """The container of a service."""
        (found,) = client.containers.list(
            all=True, filters={"label": [*self._labels, f"{_SERVICE}={service}"]}
        )
        return found

    def left(self, client: Any) -> list[str]:
        """Names of containers, networks and volumes of this project."""
        label = {"label": self._labels}
        containers = client.containers.list(all=True, filters=label)
        found = [*containers, *client.networks.list(filters=label), *client.volumes.list(filters=label)]
        return [each.name for each in found]

    @property
    def _labels(self) -> list[str]:
        return [f"com.docker.compose.project={self.project}"]


_SERVICE = "com.docker.compose.service"


@contextmanager
def compose(file: str, *, program: Sequence[str] = (), **variables: str) -> Iterator[Compose]:
    """The project up, on a free port; down at the end, whatever happened."""
    project = Compose(ROOT / file, {"ORSAY_PORT": "0", **variables}, program=program or COMPOSE or ())
    try:
        project("up", "-d")
        yield project
    finally:
        project("down", "--volumes", "--timeout", "20", limit_s=STOP_LIMIT_S)
