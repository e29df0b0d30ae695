"""What happens in the sandboxes of a service, for those that count, record and show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

from ..authoring.sandbox.model import Limit

if TYPE_CHECKING:  # events are known also to servers without sandboxes
    from .base import SandboxSpec

__all__ = [
    "CommandEnded",
    "EndReason",
    "FileUsed",
    "OnSandboxEvent",
    "SandboxEnded",
    "SandboxEvent",
    "SandboxMade",
    "Tenant",
    "Tenanted",
]

EndReason: TypeAlias = Literal["deleted", "session_ended", "idle", "lost", "failed", "shutdown"]
"""Why a sandbox ended; ``failed``: it could not be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """``sandbox`` is its id; ``started_at`` is in seconds since 1970."""

    sandbox: str
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxMade(_Event):
    """A sandbox that answers, ``duration_s`` after it was asked for. ``warm``: it was made ahead."""

    spec: SandboxSpec
    warm: bool
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxEnded(_Event):
    """The end of a sandbox of that age, in words as ``detail``, with the number of its uses."""

    spec: SandboxSpec
    reason: EndReason
    detail: str
    duration_s: float
    commands: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnded(_Event):
    """A command.

    ``command`` and ``output`` are the beginning of it and of its output, without keys of sessions;
    ``size_bytes`` is that of the whole output. ``return_code`` is None for one that was cut off,
    since its sandbox ended or its caller left.
    """

    command: str
    output: bytes
    size_bytes: int
    return_code: int | None
    timed_out: bool
    duration_s: float
    limit: Limit | None = None
    """The limit that ended it, where one did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUsed(_Event):
    """A file that was read or written from outside, with the size of the whole file."""

    kind: Literal["read", "write"]
    path: str
    size_bytes: int


SandboxEvent: TypeAlias = SandboxMade | SandboxEnded | CommandEnded | FileUsed
OnSandboxEvent: TypeAlias = Callable[[SandboxEvent], None]


class Tenant(Protocol):
    """The session to which sandboxes belong."""

    @property
    def sid(self) -> str: ...

    @property
    def owner(self) -> str:
        """The owner of the session, which is not the one of its sandboxes."""
        ...

    @property
    def journal_id(self) -> int | None:
        """Id of its row in the journal; None without a journal."""
        ...

    @property
    def running_call(self) -> str | None:
        """Task id of the call that runs; None for none, and for several, of which nobody can tell."""
        ...

    def sandbox_used(self, event: SandboxEvent, call: str | None) -> None:
        """Record the event, which ``call`` brought about."""
        ...


@runtime_checkable
class Tenanted(Protocol):
    """A listener that knows its session."""

    @property
    def tenant(self) -> Tenant: ...
