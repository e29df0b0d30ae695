"""Snapshots that a keeper holds: the changes of a sandbox, each a layer over those that it began with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ...errors import SandboxError
from ..snapshot_tree import Snapshot, SnapshotTree

__all__ = ["BubblewrapSnapshots", "layers_of"]

_DEEPEST = 100
"""Layers of a sandbox: options of a mount are a page long, in which each has its path."""


class BubblewrapSnapshots(SnapshotTree):
    """Snapshots of a keeper, which ``keep`` tells to make one of a sandbox, and ``drop`` to remove it."""

    def __init__(
        self, keep: Callable[[str, str], Awaitable[None]], drop: Callable[[str], Awaitable[None]]
    ) -> None:
        super().__init__()
        self._keep = keep
        self._drop = drop

    async def _make(self, snapshot: Snapshot, of: str) -> None:
        if len(layers_of(snapshot)) > _DEEPEST:
            raise SandboxError(f"snapshots of forks of snapshots are {_DEEPEST} deep at most")
        await self._keep(snapshot.id, of)

    async def _remove(self, snapshot: Snapshot) -> None:
        await self._drop(snapshot.id)


def layers_of(snapshot: Snapshot | None) -> Sequence[str]:
    """The snapshot and those that it is made from, the last one first."""
    found = []
    while snapshot is not None:
        found.append(snapshot.id)
        snapshot = snapshot.parent
    return found
