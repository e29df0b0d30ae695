"""Sandboxes as containers of a Docker engine, each with the agent as its process 1."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import uuid
from collections.abc import Mapping

from ..errors import EngineError, SandboxError
from ..logs import get_logger
from ..runtimes.docker.engine import Engine
from ..runtimes.docker.spec import Bind, ContainerSpec, Pull
from .agent import agent_program
from .agent.connection import AgentConnection
from .base import SandboxSpec
from .sandbox import Sandbox

__all__ = ["DEFAULT_IMAGE", "SANDBOX_LABEL", "DockerSandboxes"]

SANDBOX_LABEL = "orsay.sandbox"
DEFAULT_IMAGE = "python:3.11-slim"
_AGENT = "/.orsay-agent"
_READY_LIMIT_S = 60.0
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL")
"""What package managers and graders need. With SYS_PTRACE, a command could reach the agent."""

_log = get_logger(__name__)


class DockerSandboxes:
    """Back end over an engine, which the caller closes.

    ``labels`` mark the server's containers. Those with an open network are in ``network``. A container that
    hears nothing of the server for ``lease_s`` ends.
    """

    def __init__(
        self,
        engine: Engine,
        labels: Mapping[str, str],
        *,
        lease_s: float = 60,
        pull: Pull = "missing",
        network: str = "bridge",
    ) -> None:
        self._engine = engine
        self._labels = dict(labels)
        self._lease_s = lease_s
        self._pull = pull
        self._network = network
        self._open: set[Sandbox] = set()
        self._closed = False

    async def create(self, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
        """Make a sandbox that answers, under that id or a new one.

        Raises ImageMissing, SandboxError, EngineError.
        """
        if self._closed:
            raise SandboxError("sandboxes are closed")
        spec = dataclasses.replace(spec, image=spec.image or DEFAULT_IMAGE)
        image = await self._engine.image(spec.image, pull=self._pull)
        program = agent_program(image.architecture)
        sandbox_id = sandbox_id or f"sb-{uuid.uuid4().hex}"
        container = await self._engine.create(
            ContainerSpec(
                image=spec.image,
                entrypoint=(_AGENT, str(math.ceil(self._lease_s))),
                command=(),
                labels={**self._labels, SANDBOX_LABEL: sandbox_id},
                variables=spec.variables,
                user="0:0",
                binds=[Bind(source, target, read_only=True) for target, source in spec.folders.items()],
                network="none" if spec.network == "none" else self._network,
                cpus=spec.cpus,
                memory_bytes=spec.memory_bytes,
                pids=spec.processes,
                capabilities=_CAPABILITIES,
                init=False,
                log_bytes=1_000_000,
            )
        )
        connection = AgentConnection(self._lease_s)
        stream = _Frames(connection)

        async def remove() -> None:
            await self._engine.remove(container)
            self._open.discard(sandbox)

        sandbox = Sandbox(sandbox_id, connection, remove)
        self._open.add(sandbox)
        try:
            if self._closed:
                raise SandboxError("sandboxes were closed meanwhile")
            await self._engine.put(container, _AGENT, program, mode=0o755)
            await self._engine.attach_protocol(container, stream)
            await self._engine.start(container)
            async with asyncio.timeout(_READY_LIMIT_S):
                await connection.ready()
        except TimeoutError:
            await self._give_up(sandbox)
            raise SandboxError(f"a sandbox of {spec.image} did not answer in {_READY_LIMIT_S:g} s") from None
        except BaseException:
            await self._give_up(sandbox)
            raise
        return sandbox

    async def _give_up(self, sandbox: Sandbox) -> None:
        with contextlib.suppress(EngineError):
            await sandbox.close()

    async def close(self) -> None:
        """End all sandboxes; safe to call twice."""
        self._closed = True
        ended = await asyncio.gather(*(each.close() for each in [*self._open]), return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                _log.warning("sandbox_not_removed", error=str(error))


class _Frames(asyncio.Protocol):
    """The engine's framing of an attached container without a terminal: stream, three zeroes, length, data.

    Standard output is the agent's stream; its standard error is why it ended.
    """

    def __init__(self, connection: AgentConnection) -> None:
        self._connection = connection
        self._held = bytearray()
        self._errors = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        held = self._held
        held += data
        at = 0
        while len(held) - at >= 8:
            end = at + 8 + int.from_bytes(held[at + 4 : at + 8], "big")
            if len(held) < end:
                break
            content = bytes(held[at + 8 : end])
            if held[at] == 2:
                self._errors += content[: 1000 - len(self._errors)]
            else:
                self._connection.data_received(content)
            at = end
        del held[:at]

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._errors:
            self._connection.lose(self._errors.decode(errors="replace").strip())
        self._connection.connection_lost(exc)
