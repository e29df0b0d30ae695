"""Contract of sandbox back ends: what they make, and what commands and files answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from .sandbox import Sandbox

__all__ = ["Network", "SandboxSpec", "Sandboxes"]

Network: TypeAlias = Literal["none", "open"]


@dataclass(frozen=True, kw_only=True)
class SandboxSpec:
    """What a sandbox is made from. Limits hold for all of its processes together; None: no limit."""

    image: str
    """The back end's own for ``""``: python:3.11-slim of Docker, this machine's system of bubblewrap."""
    variables: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    memory_bytes: int | None = None
    processes: int | None = 1024
    network: Network = "none"
    folders: Mapping[str, str] = field(default_factory=dict)
    """Folders of the engine's machine by the paths at which they are mounted, read-only."""


class Sandboxes(Protocol):
    """A back end."""

    async def create(self, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
        """Make a sandbox that answers, under that id or a new one.

        Raises ImageMissing, SandboxError, EngineError.
        """
        ...

    async def close(self) -> None:
        """End all sandboxes; safe to call twice."""
        ...
