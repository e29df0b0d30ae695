"""Sandboxes for tests."""

from __future__ import annotations

import asyncio
import platform
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from orsay.runtimes.docker.engine import Engine
from orsay.sandboxes.agent import agent_program
from orsay.sandboxes.agent.connection import AgentConnection
from orsay.sandboxes.base import SandboxSpec
from orsay.sandboxes.docker import DockerSandboxes
from orsay.sandboxes.sandbox import Sandbox

from .engine import BASE

__all__ = ["bare_agent", "comes_true", "docker_sandbox", "docker_sandboxes"]


async def comes_true(condition: Callable[[], Awaitable[bool]], *, timeout_s: float = 30) -> None:
    """Wait until it does. Raise TimeoutError past the limit."""
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.05)


@asynccontextmanager
async def bare_agent(folder: Path, *, lease_s: float = 60) -> AsyncIterator[Sandbox]:
    """The agent as a process of this machine, without any isolation."""
    program = folder / "agent"
    program.write_bytes(agent_program(platform.machine()))
    program.chmod(0o755)
    ours, its = socket.socketpair()
    with its:
        process = await asyncio.create_subprocess_exec(
            str(program), str(int(lease_s)), stdin=its.fileno(), stdout=its.fileno(), cwd=folder
        )
    connection = AgentConnection(lease_s)
    await asyncio.get_running_loop().create_connection(lambda: connection, sock=ours)

    async def remove() -> None:
        await process.wait()

    sandbox = Sandbox("bare", connection, remove)
    try:
        await connection.ready()
        yield sandbox
    finally:
        await sandbox.close()


@asynccontextmanager
async def docker_sandboxes(
    *, lease_s: float = 60, reaches_machine: bool = False
) -> AsyncIterator[tuple[DockerSandboxes, Mapping[str, str]]]:
    """A back end, with the labels of its containers and networks, of which none is left."""
    labels = {"orsay.test": uuid.uuid4().hex}
    async with await Engine.connect() as engine:
        sandboxes = DockerSandboxes(engine, labels, lease_s=lease_s, reaches_machine=reaches_machine)
        try:
            yield sandboxes, labels
        finally:
            await sandboxes.close()
            assert await engine.containers(labels) == []
            assert await engine.networks(labels) == []


@asynccontextmanager
async def docker_sandbox(**spec: object) -> AsyncIterator[Sandbox]:
    """A container of the base image."""
    async with docker_sandboxes() as (sandboxes, _):
        yield await sandboxes.create(SandboxSpec(**{"image": BASE, **spec}))  # type: ignore[arg-type]  # any
