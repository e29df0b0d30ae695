"""Specification of a container, and configuration of an image: plain values, no SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["Bind", "ContainerSpec", "ImageConfig", "Pull"]

Pull: TypeAlias = Literal["missing", "always", "never"]


@dataclass(frozen=True)
class ImageConfig:
    """Configuration of an image."""

    id: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    ports: tuple[int, ...]
    """TCP ports that it exposes, in ascending order."""
    user: str
    stop_signal: str
    size_bytes: int
    architecture: str
    """By Docker's names: amd64, arm64."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> ImageConfig:
        """Configuration from the engine's description of an image."""
        config = found.get("Config") or {}
        exposed = (each.partition("/") for each in config.get("ExposedPorts") or {})
        return cls(
            id=found["Id"],
            entrypoint=tuple(config.get("Entrypoint") or ()),
            command=tuple(config.get("Cmd") or ()),
            ports=tuple(sorted(int(port) for port, _, kind in exposed if kind in ("", "tcp"))),
            user=config.get("User") or "",
            stop_signal=config.get("StopSignal") or "SIGTERM",
            size_bytes=int(found.get("Size") or 0),
            architecture=found.get("Architecture") or "",
        )


@dataclass(frozen=True)
class Bind:
    """Bind mount: a path of the engine's machine in a container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """Specification of a container. The engine removes it when it ends, and never restarts it."""

    image: str
    entrypoint: Sequence[str]
    """Empty: the entrypoint of the image."""
    command: Sequence[str]
    labels: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    network: str = "bridge"
    published_port: int | None = None
    """A port of the container to publish on a free port of 127.0.0.1."""
    binds: Sequence[Bind] = ()
    cpus: float | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    capabilities: Sequence[str] = ()
    """Capabilities to keep, such as NET_BIND_SERVICE."""
    read_only: bool = False
    init: bool = True
    """Run Docker's own init as process 1, which reaps what ends there."""
    log_bytes: int = 10_000_000
    """Bound on the output that the engine stores; 0: it stores none."""
