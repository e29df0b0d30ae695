"""Containers for tests: runtimes with short limits, and what the engine says of what they made."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from orsay.errors import NotThere
from orsay.runtimes.docker.claim import SERVER_LABEL
from orsay.runtimes.docker.engine import Engine
from orsay.runtimes.docker.options import DockerOptions
from orsay.runtimes.docker.runtime import DockerRuntime

from .engine import image
from .runtime_session import RuntimeSession
from .sockets import SocketServer

__all__ = [
    "SHORT",
    "EngineProxy",
    "OwnServer",
    "own_server",
    "running",
    "scripted_options",
    "shares_files",
    "where",
]

SHORT: Mapping[str, str] = {
    "ORSAY_CALL_TIME_LIMIT_S": "20",
    "ORSAY_SETUP_TIME_LIMIT_S": "20",
    "ORSAY_TEARDOWN_TIME_LIMIT_S": "2",
    "ORSAY_MAX_RESULT_BYTES": str(1024 * 1024),
    "ORSAY_WORKER_STALL_S": "0.5",
    "ORSAY_LOG_LEVEL": "error",
}
"""Limits of the servers in containers, as the other runtimes have them in tests."""


def shares_files() -> dict[str, Any]:
    """Options with which a container reads and writes the temporary files of the tests."""
    folder = tempfile.gettempdir()
    return {"volumes": (f"{folder}:{folder}",), "user": f"{os.getuid()}:{os.getgid()}"}


def scripted_options(**changes: Any) -> DockerOptions:
    """Containers of the environments of tests/support/environments.py."""
    quick = {**SHORT, "ORSAY_RUNTIME": "local"}  # a container is up sooner without worker processes in it
    options: dict[str, Any] = {"image": image("scripted"), "variables": quick, "start_limit_s": 60}
    return DockerOptions(**{**options, **changes})


async def where(session: RuntimeSession) -> str:
    """Id of the container where a session lives, as the engine shortens it: the host name in there."""
    surroundings = await session.call("surroundings").text()
    found = re.search(r"'HOSTNAME': '([0-9a-f]{12})'", surroundings)
    assert found is not None
    return found[1]


class OwnServer:
    """The id of a server that is the test's own, and what the engine has of it."""

    def __init__(self, engine: Engine) -> None:
        self.id = f"test-{uuid.uuid4().hex[:12]}"
        self.engine = engine

    async def containers(self) -> list[Mapping[str, Any]]:
        """The engine's full description of each."""
        found = []
        for each in await self.engine.containers({SERVER_LABEL: self.id}):
            try:
                found.append(await self.engine.inspect(each["Id"]))
            except NotThere:
                continue  # it went just now
        return found

    async def running(self) -> list[Mapping[str, Any]]:
        """Those that run."""
        return [each for each in await self.containers() if each["State"]["Running"]]

    async def networks(self) -> list[Mapping[str, Any]]:
        return await self.engine.networks({SERVER_LABEL: self.id})

    async def until_gone(self, *, timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            while await self.containers():
                await asyncio.sleep(0.1)

    async def clear(self) -> None:
        """Remove what the test left, which is nothing if all is well."""
        for container in await self.engine.containers({SERVER_LABEL: self.id}):
            await self.engine.remove(container["Id"])
        for network in await self.networks():
            await self.engine.remove_network(network["Id"])


class EngineProxy(SocketServer):
    """A way to the engine that can break: ``cut`` ends all connections, and none is made while ``closed``."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def engine_url(self) -> str:
        return self.url.replace("http://", "tcp://")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closed:
            return
        there, out = await asyncio.open_unix_connection("/var/run/docker.sock")
        self._open |= {writer, out}
        try:
            await asyncio.gather(self._copy(reader, out), self._copy(there, writer))
        finally:
            self._open -= {writer, out}
            out.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    def cut(self) -> None:
        for each in self._open:
            each.transport.abort()


@asynccontextmanager
async def own_server(engine: Engine) -> AsyncIterator[OwnServer]:
    """A server id for a test; afterwards nothing may be left that bears it."""
    server = OwnServer(engine)
    try:
        yield server
        assert await server.containers() == []
        assert await server.networks() == []
    finally:
        await server.clear()


@asynccontextmanager
async def running(options: DockerOptions, own: OwnServer, *, label: str = "") -> AsyncIterator[DockerRuntime]:
    """A runtime that is ready, and stopped at the end."""
    runtime = DockerRuntime(options, server_id=own.id, label=label)
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()
