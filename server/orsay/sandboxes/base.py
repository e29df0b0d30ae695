"""Contract of sandbox back ends: what they make, and what commands and files answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..authoring.sandbox.model import Network
from .sandbox import Sandbox

__all__ = ["Network", "SandboxSpec", "Sandboxes", "fork"]


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """What a sandbox is made from. Limits hold for all of its processes together; None: no limit."""

    image: str
    """The back end's own for ``""``: python:3.11-slim of Docker, this machine's system of bubblewrap."""
    snapshot: str = ""
    """Id of a snapshot whose file system it begins with; ``image`` is only a name then."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of its commands."""
    cpus: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    processes: int | None = 1024
    network: Network = "none"
    """Names are an allow-list: see ``AllowList``."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Folders of the engine's machine by the paths at which they are mounted, read-only."""


class Sandboxes(Protocol):
    """A back end."""

    async def create(self, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
        """Make a sandbox that answers, under that id or a new one.

        Raises ImageMissing, SandboxRefused, SandboxError, EngineError.
        """
        ...

    async def snapshot(self, sandbox: Sandbox) -> str:
        """Keep a sandbox's file system as it is at one moment, and return an id for ``SandboxSpec.snapshot``.

        Its processes wait meanwhile and go on afterwards; they are not kept, nor are mounted folders. Raises
        SandboxGone, SandboxError, EngineError.
        """
        ...

    async def drop(self, snapshot: str) -> None:
        """Keep a snapshot no longer; sandboxes that began with it live on. Safe to call twice."""
        ...

    async def close(self) -> None:
        """End all sandboxes and snapshots; safe to call twice."""
        ...


async def fork(sandboxes: Sandboxes, sandbox: Sandbox, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
    """A new sandbox of ``spec`` with the file system that ``sandbox`` has now.

    Raises as ``snapshot`` and ``create`` do.
    """
    snapshot = await sandboxes.snapshot(sandbox)
    try:
        return await sandboxes.create(replace(spec, snapshot=snapshot), sandbox_id=sandbox_id)
    finally:
        await sandboxes.drop(snapshot)
