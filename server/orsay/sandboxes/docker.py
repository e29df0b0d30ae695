"""Sandboxes as containers of a Docker engine, each with the agent as its process 1."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..errors import EngineError, EngineRefused, SandboxError, SandboxRefused
from ..logs import get_logger
from ..runtimes.docker.engine import Engine
from ..runtimes.docker.spec import Bind, ContainerSpec, Pull
from .agent import agent_program, agent_program_path
from .agent.connection import AgentConnection
from .base import SandboxSpec
from .disk import DiskWatch
from .docker_disk import DockerDisks
from .docker_frames import EngineFrames
from .docker_network import OpenNetwork
from .docker_snapshots import DockerSnapshots
from .egress.gate import through_gate
from .sandbox import Sandbox
from .snapshot_tree import Snapshot

__all__ = ["DEFAULT_IMAGE", "SANDBOX_LABEL", "DockerSandboxes"]

SANDBOX_LABEL = "orsay.sandbox"
DEFAULT_IMAGE = "python:3.11-slim"
_AGENT = "/.orsay-agent"
_READY_LIMIT_S = 60.0
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL")
"""What package managers and graders need. With SYS_PTRACE, a command could reach the agent."""

_log = get_logger(__name__)


@dataclass(frozen=True)
class _Container:
    id: str
    connection: AgentConnection
    begun_with: Snapshot | None


class DockerSandboxes:
    """Back end over an engine, which the caller closes.

    ``labels`` mark the server's containers. A container that hears nothing of the server for ``lease_s``
    ends. ``disk_bytes`` is the limit where none is asked. ``reaches_machine``: those with an open network
    reach the engine's machine too.
    """

    def __init__(
        self,
        engine: Engine,
        labels: Mapping[str, str],
        *,
        lease_s: float = 60,
        pull: Pull = "missing",
        disk_bytes: int | None = None,
        reaches_machine: bool = False,
    ) -> None:
        self._engine = engine
        self._labels = dict(labels)
        self._lease_s = lease_s
        self._pull = pull
        self._network = OpenNetwork(engine, labels, lease_s=lease_s, reaches_machine=reaches_machine)
        self._disk_bytes = disk_bytes
        self._snapshots = DockerSnapshots(engine, labels)
        self._sizes = DockerDisks(engine, self._labels)
        self._disks = DiskWatch(self._sizes.measure)
        self._open: dict[Sandbox, _Container] = {}
        self._sees_files = engine.url.startswith("unix:")
        """Whether the engine has the files of this machine, as far as is known."""
        self._closed = False

    async def create(self, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
        """Make a sandbox that answers, under that id or a new one.

        Raises ImageMissing, SandboxRefused, SandboxError, EngineError.
        """
        if self._closed:
            raise SandboxError("sandboxes are closed")
        if not isinstance(spec.network, str):
            return await through_gate(self.create, spec, sandbox_id)
        spec = replace(spec, image=spec.image or DEFAULT_IMAGE)
        begun_with = self._snapshots.hold(spec.snapshot) if spec.snapshot else None
        try:
            return await self._create(spec, sandbox_id or f"sb-{uuid.uuid4().hex}", begun_with)
        except BaseException:
            await self._snapshots.let_go(begun_with)
            raise

    async def _create(self, spec: SandboxSpec, sandbox_id: str, begun_with: Snapshot | None) -> Sandbox:
        name = spec.image if begun_with is None else begun_with.image
        image = await self._engine.image(name, pull=self._pull if begun_with is None else "never")
        container = await self._container(spec, name, sandbox_id, image.architecture)
        connection = AgentConnection(self._lease_s)
        answered = False

        async def remove() -> None:
            self._disks.remove(container)
            await self._engine.remove(container)
            if self._open.pop(sandbox, None) is not None and answered:
                await self._snapshots.let_go(begun_with)

        sandbox = Sandbox(sandbox_id, connection, remove, variables=spec.variables)
        self._open[sandbox] = _Container(container, connection, begun_with)
        try:
            if self._closed:
                raise SandboxError("sandboxes were closed meanwhile")
            await self._engine.attach_protocol(container, EngineFrames(connection))
            await self._engine.start(container)
            async with asyncio.timeout(_READY_LIMIT_S):
                await connection.ready()
        except TimeoutError:
            await self._give_up(sandbox)
            raise SandboxError(f"a sandbox of {spec.image} did not answer in {_READY_LIMIT_S:g} s") from None
        except BaseException:
            await self._give_up(sandbox)
            raise
        answered = True
        disk_bytes = spec.disk_bytes or self._disk_bytes
        if disk_bytes is not None:
            self._disks.add(container, disk_bytes, sandbox, connection)
        return sandbox

    async def image_id(self, image: str) -> str:
        """What an image's name stands for now. Raises ImageMissing, EngineError."""
        return (await self._engine.image(image or DEFAULT_IMAGE, pull=self._pull)).id

    async def _container(self, spec: SandboxSpec, image: str, sandbox_id: str, machine: str) -> str:
        """A container that is not started, with the agent in it. A mount costs less than a copy."""
        program = agent_program_path(machine)
        network = "none"
        if spec.network == "open":
            network = await self._network.ready(image, agent_program(machine))

        def wanted(*binds: Bind) -> ContainerSpec:
            return ContainerSpec(
                image=image,
                entrypoint=(_AGENT, str(math.ceil(self._lease_s))),
                command=(),
                labels={**self._labels, SANDBOX_LABEL: sandbox_id},
                user="0:0",
                binds=[
                    *binds,
                    *(Bind(source, target, read_only=True) for target, source in spec.folders.items()),
                ],
                network=network,
                cpus=spec.cpus,
                memory_bytes=spec.memory_bytes,
                pids=spec.processes,
                capabilities=_CAPABILITIES,
                init=False,
                log_bytes=0,
            )

        if self._sees_files and os.access(program, os.X_OK):
            try:
                return await self._made(wanted(Bind(str(program), _AGENT, read_only=True)))
            except (EngineError, SandboxRefused) as exc:
                if str(program) not in str(exc):
                    raise
                self._sees_files = False  # this server has a file system of its own, in a container
        container = await self._made(wanted())
        try:
            await self._engine.put(container, _AGENT, agent_program(machine), mode=0o755)
        except BaseException:
            with contextlib.suppress(EngineError):
                await asyncio.shield(self._engine.remove(container))
            raise
        return container

    async def _made(self, wanted: ContainerSpec) -> str:
        try:
            return await self._engine.create(wanted)
        except EngineRefused as exc:  # more CPUs than the machine has, for example
            raise SandboxRefused(f"a sandbox of {wanted.image} cannot be made: {exc}") from exc

    async def _give_up(self, sandbox: Sandbox) -> None:
        with contextlib.suppress(EngineError):
            await sandbox.close()

    async def snapshot(self, sandbox: Sandbox) -> str:
        """Keep a container's file system, as of a moment at which its processes are paused.

        Raises SandboxGone, SandboxError, EngineError.
        """
        if sandbox.gone is not None:
            raise sandbox.gone
        found = self._open.get(sandbox)
        if found is None:
            raise SandboxError(f"sandbox {sandbox.id} is not one of these")
        with found.connection.paused():
            return await self._snapshots.take(found.id, found.begun_with)

    async def drop(self, snapshot: str) -> None:
        """Keep a snapshot no longer; sandboxes that began with it live on. Safe to call twice."""
        await self._snapshots.drop(snapshot)

    async def close(self) -> None:
        """End all sandboxes and snapshots; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        await self._disks.close()
        closing = asyncio.gather(*(each.close() for each in [*self._open]), return_exceptions=True)
        for error in await closing:
            if isinstance(error, BaseException):
                _log.warning("sandbox_not_removed", error=str(error))
        try:
            await self._snapshots.close()
        except EngineError as exc:
            _log.warning("snapshots_not_removed", error=str(exc))
        await self._network.close()
