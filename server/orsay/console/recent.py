"""Ring buffer of the latest faults, each visible to the owner of its session."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from pydantic import BaseModel, ConfigDict, RootModel

from ..errors import Faulted
from ..faults import FaultLog
from .answers import plain

__all__ = ["Ended", "FaultEntry", "Faults", "RecentFaults"]

_KEPT = 500
_SHOWN = 100
_LONGEST = 2_000


class FaultEntry(BaseModel):
    """One fault; ``id`` is its id in the log, ``at`` in seconds since 1970."""

    id: str
    at: float
    fault: str
    environment: str
    tool: str | None
    session: str
    message: str


class Faults(RootModel[list[FaultEntry]]):
    """The newest first."""


class Ended(BaseModel):
    """An ended session; ``fault`` is that of its teardown, or null."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    sid: str
    fault: str | None = None


class RecentFaults:
    """Listener of the fault log that keeps the last few hundred.

    Messages follow the error-detail policy (S4).
    """

    def __init__(self, faults: FaultLog) -> None:
        self._faults = faults
        self._kept: deque[tuple[str | None, FaultEntry]] = deque(maxlen=_KEPT)
        faults.listen(self._on_fault)

    def of(self, owner: str) -> list[FaultEntry]:
        """Faults in sessions of that owner, the newest first."""
        found = [entry for whose, entry in reversed(self._kept) if whose == owner]
        return found[:_SHOWN]

    def _on_fault(self, fault: Faulted, context: dict[str, Any]) -> None:
        entry = FaultEntry(
            id=fault.fault_id,
            at=time.time(),
            fault=fault.fault,
            environment=str(context.get("environment", "")),
            tool=context.get("tool"),
            session=str(context.get("session", "")),
            message=plain(self._faults.text(fault))[:_LONGEST],
        )
        self._kept.append((context.get("owner"), entry))
