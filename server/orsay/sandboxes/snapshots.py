"""Snapshots that clients of the service keep: each belongs to an owner, and ends with it."""

from __future__ import annotations

import asyncio

from ..errors import BadRequest, OrsayError
from ..logs import get_logger
from .base import Sandboxes
from .sandbox import Sandbox

__all__ = ["KeptSnapshots"]

_log = get_logger(__name__)


class KeptSnapshots:
    """The snapshots of a service, ``most`` of them for each owner."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._owners: dict[str, str] = {}
        self._taking: dict[str, int] = {}

    async def take(self, backend: Sandboxes, sandbox: Sandbox, owner: str) -> str:
        """Keep a sandbox's file system, and return an id. Raises BadRequest where the owner has too many."""
        taking = self._taking.get(owner, 0)
        if taking + sum(each == owner for each in self._owners.values()) >= self._most:
            raise BadRequest(f"all {self._most} snapshots of this key are in use: drop one of them")
        self._taking[owner] = taking + 1
        try:
            snapshot = await backend.snapshot(sandbox)
        finally:
            self._taking[owner] -= 1
            if not self._taking[owner]:
                del self._taking[owner]
        if sandbox.gone is not None:  # its owner may have ended meanwhile
            await backend.drop(snapshot)
            raise sandbox.gone
        self._owners[snapshot] = owner
        return snapshot

    def check(self, snapshot: str, owner: str) -> None:
        """Raise BadRequest where that owner has no such snapshot."""
        if self._owners.get(snapshot) != owner:
            raise BadRequest(f"there is no snapshot {snapshot}: it was dropped, or never was")

    def has_some(self, owner: str) -> bool:
        """True where an owner has any."""
        return owner in self._owners.values()

    async def drop(self, backend: Sandboxes, snapshot: str, owner: str) -> None:
        """Keep one no longer. Raises BadRequest as ``check`` does."""
        self.check(snapshot, owner)
        del self._owners[snapshot]
        await backend.drop(snapshot)

    async def end_owner(self, backend: Sandboxes, owner: str) -> None:
        """Keep those of an owner no longer."""
        own = [snapshot for snapshot, of in self._owners.items() if of == owner]
        for snapshot in own:
            del self._owners[snapshot]
        for error in await asyncio.gather(*map(backend.drop, own), return_exceptions=True):
            if isinstance(error, OrsayError):
                _log.warning("snapshot_left", owner=owner, error=str(error))
            elif error is not None:
                raise error
