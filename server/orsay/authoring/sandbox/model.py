"""What an author asks of a sandbox, what it answers, and the contract of what stands behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

__all__ = [
    "LARGEST_COMMAND",
    "CommandResult",
    "Connect",
    "Driver",
    "FileInfo",
    "Limit",
    "Network",
    "RunResult",
    "SandboxOptions",
    "size_in_bytes",
]

Limit: TypeAlias = Literal["time", "memory", "disk"]
Network: TypeAlias = Literal["none", "open"] | tuple[str, ...]
LARGEST_COMMAND = 32 << 20
"""Bytes of a request for a command, with its standard input in base64."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a command, in bytes."""

    output: bytes
    """The first ``max_bytes`` of what it wrote, to standard output and standard error in order."""
    return_code: int
    """Exit code; 128 + n when signal n ended it; 124 after its time limit; 126 or 127 when it could not be
    started, with the reason as its output."""
    timed_out: bool
    truncated: bool
    duration_s: float
    output_bytes: int = 0
    """Size of all that it wrote, kept or not."""
    limit: Limit | None = None
    """The limit that ended it, where one did: its time, or the memory or disk of its sandbox."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command; its fields are those of ``RunResult``, with the output as text."""

    raw: bytes
    return_code: int
    timed_out: bool
    truncated: bool
    duration_s: float
    limit: Limit | None = None
    left_out: tuple[str, ...] = ()
    """Of ``grade``: artifacts that the grader did not get, a hundred paths at most."""

    @property
    def output(self) -> str:
        """The output as UTF-8, with U+FFFD for what is none."""
        return self.raw.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        """True where the command ended with 0."""
        return self.return_code == 0


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file's description; that of a link is the link's own. Times in seconds since 1970."""

    name: str
    kind: Literal["file", "folder", "link", "other"]
    size: int
    mode: int
    changed_at: int
    user: int
    group: int


@dataclass(frozen=True, kw_only=True)
class SandboxOptions:
    """What a sandbox is made from. Limits hold for all of its processes together."""

    image: str | None = None
    """None: the server's own choice."""
    cpus: float = 1.0
    memory_bytes: int = 1 << 30
    disk_bytes: int | None = None
    """None: the server's own limit."""
    processes: int = 1024
    network: Network = "none"
    variables: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    """Names of the server's data folders by the paths at which they are mounted, read-only."""
    snapshot: str = ""
    """A snapshot to begin with, in place of the image."""
    beside: str = ""
    """The id of the sandbox that it grades, in whose place it is counted on a full server."""


class Driver(Protocol):
    """A sandbox as its back end sees it.

    Raises SandboxGone once it has ended, SandboxError where its machinery fails, OSError by its errno for
    what the file system says, and ValueError for what cannot be a command.
    """

    @property
    def id(self) -> str: ...

    async def run(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        stdin: bytes | None = None,
        user: str = "",
        folder: str = "",
        variables: Mapping[str, str] | None = None,
        on_output: Callable[[bytes], None] = lambda data: None,
    ) -> RunResult: ...

    async def stat(self, path: str) -> FileInfo: ...

    async def list(self, path: str) -> list[FileInfo]: ...

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes: ...

    async def write(self, path: str, content: bytes, *, mode: int | None = None) -> None: ...

    async def remove(self, path: str) -> None: ...

    async def snapshot(self) -> str:
        """Keep its file system, and return an id for ``SandboxOptions.snapshot``."""
        ...

    async def close(self) -> None: ...


class Connect(Protocol):
    """What makes sandboxes."""

    async def create(self, options: SandboxOptions) -> Driver:
        """A sandbox that answers. Raises SandboxRefused and ImageMissing for what cannot be had, and
        SandboxError.
        """
        ...

    async def drop(self, snapshot: str) -> None:
        """Keep a snapshot no longer. Raises SandboxError, and SandboxRefused where there is none."""
        ...


def size_in_bytes(size: int | str) -> int:
    """``512m`` or ``1.5g`` in bytes, by powers of 1024. Raises ValueError."""
    if isinstance(size, int):
        return size
    found = _SIZE.fullmatch(size.strip())
    if found is None:
        raise ValueError(f"{size!r} is no size: write for example 512m or 2g")
    return round(float(found[1]) * float(1024 ** _POWERS[found[2].lower()]))
