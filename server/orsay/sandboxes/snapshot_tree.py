"""Snapshots of a back end: each is kept until it is dropped and nothing is made from it."""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod

from ..errors import SandboxError

__all__ = ["Snapshot", "SnapshotTree"]


class Snapshot:
    """What a sandbox had changed, over a ``parent`` if it began with one."""

    def __init__(self, parent: Snapshot | None, image: str) -> None:
        self.id = f"snap-{secrets.token_hex(16)}"
        self.parent = parent
        self.image = image
        """The image that sandboxes are made from, as the back end names it."""
        self.users = 0
        """Sandboxes and snapshots that are made from it."""
        self.dropped = False


class SnapshotTree(ABC):
    """The snapshots of one back end, which tells how they are made and removed."""

    def __init__(self) -> None:
        self._kept: dict[str, Snapshot] = {}

    @abstractmethod
    async def _make(self, snapshot: Snapshot, of: str) -> None:
        """Make it from a sandbox, as the back end names that. Raises SandboxError, EngineError."""

    @abstractmethod
    async def _remove(self, snapshot: Snapshot) -> None:
        """Remove it; raises nothing."""

    async def take(self, of: str, begun_with: Snapshot | None, *, image: str = "") -> str:
        """A snapshot of a sandbox, which began with another or none. Raises as ``_make``."""
        made = Snapshot(begun_with, image)
        if begun_with is not None:
            begun_with.users += 1
        try:
            await self._make(made, of)
        except BaseException:
            await self.let_go(begun_with)
            raise
        self._kept[made.id] = made
        return made.id

    def hold(self, snapshot: str) -> Snapshot:
        """A snapshot that stays until ``let_go``. Raises SandboxError where there is none of that id."""
        found = self._kept.get(snapshot)
        if found is None:
            raise SandboxError(f"there is no snapshot {snapshot}")
        found.users += 1
        return found

    async def let_go(self, snapshot: Snapshot | None) -> None:
        """Note that what was made from it is gone."""
        if snapshot is not None:
            snapshot.users -= 1
            await self._remove_unused(snapshot)

    async def drop(self, snapshot: str) -> None:
        """Keep it no longer than what is made from it; safe to call twice."""
        found = self._kept.pop(snapshot, None)
        if found is not None:
            found.dropped = True
            await self._remove_unused(found)

    async def _remove_unused(self, snapshot: Snapshot) -> None:
        if not snapshot.users and snapshot.dropped:
            await self._remove(snapshot)
            await self.let_go(snapshot.parent)

    async def close(self) -> None:
        """Drop all."""
        await asyncio.gather(*(self.drop(each) for each in [*self._kept]))

    def forget(self) -> None:
        """All are gone without our doing."""
        self._kept.clear()
