"""Options of containers, checked where they are given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from ...errors import ConfigError
from ..remote.options import RemoteOptions
from .spec import Bind, Pull

__all__ = ["ISOLATED", "DockerOptions"]

ISOLATED = "isolated"
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_LEAST_MEMORY = 6 << 20  # the engine refuses less
_SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[^=\0]+")


@dataclass(frozen=True, kw_only=True)
class DockerOptions:
    """Options of the containers of one image. Times in seconds. Raises ConfigError for invalid values."""

    image: str
    replicas: int = 1
    """Number of containers that share the sessions."""
    max_sessions_per_replica: int | None = None
    spare: int = 0
    """Number of idle containers that replace lost replicas."""
    idle_s: float | None = None
    """Idle time after which all containers stop; the next request starts them again."""
    cpus: float | None = None
    memory: str | None = None
    """Memory limit, such as 512m or 2g; swap included."""
    pids: int | None = 1024
    network: str = "bridge"
    """``bridge``; ``isolated``: a network of its own without a way out; or the name of a network."""
    port: int | None = None
    """Port of the server in the container; by default the lowest that the image exposes, else 8080."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables; anyone with access to the engine can read them."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Files of the engine's machine by the names they get in /run/secrets."""
    volumes: tuple[str, ...] = ()
    """``/host:/container`` or ``/host:/container:ro``."""
    command: tuple[str, ...] | None = None
    """Command in place of the image's CMD."""
    user: str | None = None
    capabilities: tuple[str, ...] = ()
    """Capabilities of root to keep, such as CHOWN; a container has none by default."""
    read_only: bool = False
    """Read-only root file system, with a writable /tmp."""
    pull: Pull = "missing"
    start_limit_s: float = 120
    hang_limit_s: float = 60
    """Time after which a container with an unresponsive server is replaced."""
    stop_grace_s: float = 10
    """Time between the request to stop and the kill."""
    lease_s: float = 60
    """Time after which a container ends when the Orsay server is gone."""
    hash_seed: int | Literal["random"] = "random"
    """PYTHONHASHSEED of the server in the container, and of its workers if it is one of ours."""
    remote: RemoteOptions = field(default_factory=RemoteOptions)

    def __post_init__(self) -> None:
        image = self.image
        if not image:
            raise ConfigError("containers need the name of an image")
        least: dict[str, tuple[float | None, float]] = {
            "replicas": (self.replicas, 1),
            "spare": (self.spare, 0),
            "max_sessions_per_replica": (self.max_sessions_per_replica, 1),
            "cpus": (self.cpus, 0.01),
            "pids": (self.pids, 8),
            "idle_s": (self.idle_s, 1),
            "lease_s": (self.lease_s, 3),
            "start_limit_s": (self.start_limit_s, 1),
            "hang_limit_s": (self.hang_limit_s, 1),
            "stop_grace_s": (self.stop_grace_s, 0),
        }
        for name, (value, limit) in least.items():
            if value is not None and value < limit:
                raise ConfigError(f"image {image}: {name} must be at least {limit:g}, not {value:g}")
        if self.port is not None and not 1 <= self.port <= 65535:
            raise ConfigError(f"image {image}: port must be from 1 to 65535, not {self.port}")
        if not self.network or self.network in ("host", "none") or self.network.startswith("container:"):
            raise ConfigError(
                f"image {image}: network {self.network!r} cannot be used, since the server has to reach the"
                f" container; use bridge, {ISOLATED}, or the name of a network"
            )
        for variable in self.variables:
            if not _VARIABLE.fullmatch(variable):
                raise ConfigError(f"image {image}: {variable!r} cannot be the name of a variable")
        _ = self.memory_bytes, self.binds  # validation: both raise

    @property
    def memory_bytes(self) -> int | None:
        if self.memory is None:
            return None
        match = _SIZE.fullmatch(self.memory.strip())
        size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
        if size < _LEAST_MEMORY:
            raise ConfigError(
                f"image {self.image}: memory {self.memory!r} is no size of at least 6 MiB; write 512m or 2g"
            )
        return size

    @property
    def binds(self) -> tuple[Bind, ...]:
        """The volumes, and the secrets as files of /run/secrets."""
        return (
            *(self._volume(each) for each in self.volumes),
            *(self._secret(name, source) for name, source in self.secrets.items()),
        )

    def _volume(self, text: str) -> Bind:
        source, _, rest = text.partition(":")
        target, _, mode = rest.partition(":")
        absolute = source.startswith("/") and target.startswith("/")
        if not absolute or mode not in ("", "ro", "rw"):
            raise ConfigError(
                f"image {self.image}: volume {text!r} is not /host:/container or /host:/container:ro, with"
                " absolute paths"
            )
        return Bind(source, target, read_only=mode == "ro")

    def _secret(self, name: str, source: str) -> Bind:
        if not _SECRET.fullmatch(name):
            raise ConfigError(
                f"image {self.image}: secret {name!r} cannot be a file name: use letters, digits, . _ -"
            )
        if not PurePosixPath(source).is_absolute():
            raise ConfigError(
                f"image {self.image}: secret {name!r} needs the absolute path of a file, not {source!r}"
            )
        return Bind(source, f"/run/secrets/{name}", read_only=True)
