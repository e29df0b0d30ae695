"""Living sandboxes of the server, as the console shows them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from ..errors import UnknownSession

if TYPE_CHECKING:
    from ..sandboxes.service import HostedSandbox, SandboxService

__all__ = ["EndedSandbox", "LivingSandbox", "end_sandbox", "show_sandboxes"]

_SHOWN = 200


class LivingSandbox(BaseModel):
    """One sandbox, with its limits and its use.

    ``sid`` is the session that made it, and ``session`` the id of that in the journal; null for none.
    ``idle_s`` is the time since its client gave a sign of life, 0 while a command runs.
    """

    id: str
    image: str
    sid: str | None
    session: str | None
    state: Literal["creating", "living"]
    cpus: float | None
    memory_bytes: int | None
    network: Literal["none", "open"]
    age_s: float
    idle_s: float
    commands: int
    running: int


class EndedSandbox(BaseModel):
    """A sandbox that was ended."""

    id: str


def show_sandboxes(service: SandboxService, owner: str) -> list[dict[str, object]]:
    """The newest of that owner, each as a LivingSandbox; of all where there are no owners (empty)."""
    own = [each for each in service.living.values() if _is_of(each, owner)]
    return [_show(each) for each in reversed(own[-_SHOWN:])]


async def end_sandbox(service: SandboxService, sandbox_id: str, owner: str) -> EndedSandbox:
    """End a sandbox; returns when it is gone. Raises UnknownSession, for one of another owner too."""
    hosted = service.living.get(sandbox_id)
    if hosted is None or not _is_of(hosted, owner):
        raise UnknownSession(f"there is no sandbox {sandbox_id}")
    await service.end(hosted, "it was ended in the console")
    return EndedSandbox(id=sandbox_id)


def _is_of(hosted: HostedSandbox, owner: str) -> bool:
    return not owner or owner == (hosted.owner if hosted.tenant is None else hosted.tenant.owner)


def _show(hosted: HostedSandbox) -> dict[str, object]:
    tenant, spec = hosted.tenant, hosted.spec
    journal_id = None if tenant is None else tenant.journal_id
    busy = hosted.running or hosted.readers or not hosted.creating.done()
    return {
        "id": hosted.id,
        "image": spec.image,
        "sid": None if tenant is None else tenant.sid,
        "session": None if journal_id is None else str(journal_id),
        "state": "living" if hosted.creating.done() else "creating",
        "cpus": spec.cpus,
        "memory_bytes": spec.memory_bytes,
        "network": spec.network,
        "age_s": round(max(0.0, time.time() - hosted.started_at), 3),
        "idle_s": 0.0 if busy else round(max(0.0, time.monotonic() - hosted.used_at), 3),
        "commands": hosted.commands,
        "running": hosted.running,
    }
