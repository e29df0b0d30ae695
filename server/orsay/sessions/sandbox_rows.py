"""Rows of what a session did in its sandboxes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from orsay_protocol.redact import Redactor

from ..journal.ids import new_id
from ..journal.records import SandboxUsed
from ..sandboxes.events import CommandEnded, FileUsed, SandboxEvent, SandboxMade

if TYPE_CHECKING:
    from ..sandboxes.base import SandboxSpec

__all__ = ["sandbox_row"]


def sandbox_row(session: int, event: SandboxEvent, call: str | None, hide: Redactor | None) -> SandboxUsed:
    """Row of that event; ``call`` is the task id of the call that brought it about."""
    row = SandboxUsed(
        id=new_id(),
        session=session,
        sandbox=event.sandbox,
        kind="ended",
        call=call,
        what="",
        started_at=event.started_at,
        hide=hide,
    )
    if isinstance(event, CommandEnded):
        return row._replace(
            kind="command",
            what=event.command,
            output=event.output,
            exit_code=event.return_code,
            timed_out=event.timed_out,
            duration_s=event.duration_s,
            size_bytes=event.size_bytes,
        )
    if isinstance(event, FileUsed):
        return row._replace(kind=event.kind, what=event.path, size_bytes=event.size_bytes)
    if isinstance(event, SandboxMade):
        return row._replace(
            kind="made",
            what=event.spec.image,
            duration_s=event.duration_s,
            detail=json.dumps({**_limits(event.spec), "start": "warm" if event.warm else "cold"}),
        )
    told = {"reason": event.detail, "commands": event.commands, "files": event.files}
    return row._replace(
        what=event.spec.image,
        duration_s=event.duration_s,
        reason=event.reason,
        detail=json.dumps(told),
    )


def _limits(spec: SandboxSpec) -> dict[str, object]:
    """Limits of a sandbox; its variables may hold secrets, and are not recorded."""
    return {
        "cpus": spec.cpus,
        "memory_bytes": spec.memory_bytes,
        "processes": spec.processes,
        "network": spec.network,
        "folders": sorted(spec.folders),
    }
