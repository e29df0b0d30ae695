"""Back ends of sandboxes, for tests that are the same for all of them, and what is seen of each outside."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest
from orsay.runtimes.docker.engine import Engine
from orsay.sandboxes.bubblewrap.backend import HOST, BubblewrapSandboxes
from orsay.sandboxes.docker import SANDBOX_LABEL, DockerSandboxes

from .bubblewrap import bubblewrap_sandboxes
from .engine import BASE
from .sandboxes import docker_sandboxes

__all__ = ["KINDS", "Backend", "open_kind", "tiny_image"]

KINDS = [
    pytest.param("bubblewrap", marks=pytest.mark.process),
    pytest.param("docker", marks=pytest.mark.engine),
]


class Backend(Protocol):
    """A back end under test, with an image that has bash and Python."""

    image: str

    @property
    def sandboxes(self) -> DockerSandboxes | BubblewrapSandboxes: ...

    async def living(self) -> set[str]:
        """Ids of sandboxes of which there are processes, once those that end have left nothing."""
        ...

    async def snapshots(self) -> int:
        """Number of those that are kept."""
        ...

    async def kill(self, sandbox_id: str) -> None:
        """End a sandbox from outside."""
        ...


@asynccontextmanager
async def open_kind(kind: str, state: Path) -> AsyncIterator[Backend]:
    """A back end of that name, of which nothing is left."""
    if kind == "docker":
        async with docker_sandboxes() as (sandboxes, labels), await Engine.connect() as engine:
            yield _Docker(sandboxes, engine, labels)
            await sandboxes.close()
            assert await engine.images(labels) == []
    else:
        async with bubblewrap_sandboxes(state) as made:
            yield _Bubblewrap(made, state)


class _Docker:
    image = BASE

    def __init__(self, sandboxes: DockerSandboxes, engine: Engine, labels: Mapping[str, str]) -> None:
        self.sandboxes = sandboxes
        self._engine = engine
        self._labels = labels

    async def living(self) -> set[str]:
        found = await self._engine.containers(self._labels)
        return {f"{each['Labels'][SANDBOX_LABEL]}{_ending(each['State'])}" for each in found}

    async def snapshots(self) -> int:
        return len(await self._engine.images(self._labels))

    async def kill(self, sandbox_id: str) -> None:
        [container] = await self._engine.containers({SANDBOX_LABEL: sandbox_id})
        await self._engine.kill(container["Id"])


def _ending(state: str) -> str:
    return "" if state == "running" else f" ({state})"


class _Bubblewrap:
    image = HOST

    def __init__(self, sandboxes: BubblewrapSandboxes, state: Path) -> None:
        self.sandboxes = sandboxes
        self._state = state

    def _folder(self) -> Path:
        [folder] = [each for each in self._state.iterdir() if each.is_dir()]
        return folder

    async def living(self) -> set[str]:
        found = {each.name for each in self._folder().iterdir()} - {"agent", "host", "snapshots"}
        ready = {made.name for made in self.sandboxes._open.values()} - {*self.sandboxes._starting}
        return {each.partition(".")[0] if each in ready else f"{each} (starting or ending)" for each in found}

    async def snapshots(self) -> int:
        return len([*(self._folder() / "snapshots").iterdir()])

    async def kill(self, sandbox_id: str) -> None:
        [made] = [made for sandbox, made in self.sandboxes._open.items() if sandbox.id == sandbox_id]
        keeper = self.sandboxes._keeper
        assert keeper is not None
        for child in Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split():
            if made.name in Path(f"/proc/{child}/cgroup").read_text():
                os.kill(int(child), signal.SIGKILL)


def tiny_image(folder: Path) -> str:
    """An unpacked image with bash, cat and nothing else."""
    for name in ("bash", "cat"):
        program = shutil.which(name)
        assert program is not None
        told = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
        libraries = [word for word in told.split() if word.startswith("/")]
        for path, place in [(program, f"/bin/{name}"), *((each, each) for each in libraries)]:
            target = folder / place.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return str(folder)
