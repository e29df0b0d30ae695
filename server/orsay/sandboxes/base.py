"""Contract of sandbox back ends: what they make, and what commands and files answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..authoring.sandbox.model import Network
from ..errors import SandboxRefused
from .sandbox import Sandbox

__all__ = ["Network", "SandboxSpec", "Sandboxes", "fork"]

_LONGEST_VARIABLE = 100_000  # bytes; Linux allows 128 KiB, with the name (MAX_ARG_STRLEN, execve(2))


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

    def __post_init__(self) -> None:
        """Raise SandboxRefused for what no back end can make, or could take for something else."""
        for name, value in self.variables.items():
            if not name or "=" in name or "\0" in name + value:
                raise SandboxRefused(
                    f"{name!r} cannot be a variable: a name has no '=', and neither has a NUL"
                )
            if len(name) + len(value.encode("utf-8", "replace")) > _LONGEST_VARIABLE:
                raise SandboxRefused(
                    f"the variable {name} is too long: {_LONGEST_VARIABLE} bytes are allowed"
                )
        for target, source in self.folders.items():
            if not target.startswith("/") or "\0" in target + source:
                raise SandboxRefused(f"{target!r} must be an absolute path without a NUL")
        if "\0" in self.image + self.snapshot:
            raise SandboxRefused("the name of an image cannot hold a NUL")
        for what, wanted, least, most in (
            ("cpus", self.cpus, 0.01, 4096),
            ("memory", self.memory_bytes, 16 << 20, 1 << 50),
            ("disk", self.disk_bytes, 1 << 20, 1 << 60),
            ("processes", self.processes, 8, 1 << 22),
        ):
            if wanted is not None and not least <= wanted <= most:
                raise SandboxRefused(f"{what} must be from {least} to {most}, and not {wanted}")


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
