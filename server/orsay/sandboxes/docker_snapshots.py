"""Snapshots of containers: images of the engine, each until it is dropped and nothing is made from it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Mapping

from ..errors import EngineError, NotThere, SandboxError
from ..logs import get_logger
from ..runtimes.docker.claim import SNAPSHOT_LABEL
from ..runtimes.docker.engine import Engine

__all__ = ["DockerSnapshots", "Snapshot"]

_REPOSITORY = "orsay-snapshot"
"""Images have a name, since `docker image prune` removes those that have none."""

_log = get_logger(__name__)


class Snapshot:
    """An image, and the number of containers and images that are made from it."""

    def __init__(self, parent: Snapshot | None) -> None:
        self.id = f"snap-{secrets.token_hex(16)}"
        self.image = f"{_REPOSITORY}:{self.id}"
        self.parent = parent
        self.users = 0
        self.dropped = False


class DockerSnapshots:
    """The snapshots of one back end, whose containers have ``labels``."""

    def __init__(self, engine: Engine, labels: Mapping[str, str]) -> None:
        self._engine = engine
        self._labels = dict(labels)
        self._kept: dict[str, Snapshot] = {}

    async def take(self, container: str, begun_with: Snapshot | None) -> str:
        """An image of a container, which began with a snapshot or none. Raises EngineError."""
        made = Snapshot(begun_with)
        if begun_with is not None:
            begun_with.users += 1
        try:
            await self._engine.commit(container, made.image, labels={SNAPSHOT_LABEL: "yes"})
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
        if snapshot.users or not snapshot.dropped:
            return
        try:
            with contextlib.suppress(NotThere):
                await self._engine.remove_image(snapshot.image)
        except EngineError as exc:
            _log.warning("snapshot_left", image=snapshot.image, error=str(exc))
        await self.let_go(snapshot.parent)

    async def close(self) -> None:
        """Remove all; the containers are gone. Also those of a commit that ended after its time limit."""
        await asyncio.gather(*(self.drop(each) for each in [*self._kept]))
        await self._engine.remove_images(await self._engine.images({**self._labels, SNAPSHOT_LABEL: "yes"}))
