"""Snapshots of containers: images of the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from ..errors import EngineError, NotThere
from ..logs import get_logger
from ..runtimes.docker.claim import SNAPSHOT_LABEL
from ..runtimes.docker.engine import Engine
from .snapshot_tree import Snapshot, SnapshotTree

__all__ = ["DockerSnapshots"]

_REPOSITORY = "orsay-snapshot"
"""Images have a name, since `docker image prune` removes those that have none."""

_log = get_logger(__name__)


class DockerSnapshots(SnapshotTree):
    """The snapshots of one back end, whose containers have ``labels``."""

    def __init__(self, engine: Engine, labels: Mapping[str, str]) -> None:
        super().__init__()
        self._engine = engine
        self._labels = dict(labels)

    async def _make(self, snapshot: Snapshot, of: str) -> None:
        snapshot.image = f"{_REPOSITORY}:{snapshot.id}"
        await self._engine.commit(of, snapshot.image, labels={SNAPSHOT_LABEL: "yes"})

    async def _remove(self, snapshot: Snapshot) -> None:
        try:
            with contextlib.suppress(NotThere):
                await self._engine.remove_image(snapshot.image)
        except EngineError as exc:
            _log.warning("snapshot_left", image=snapshot.image, error=str(exc))

    async def close(self) -> None:
        """Remove all; the containers are gone. Also those of a commit that ended after its time limit."""
        await super().close()
        await self._engine.remove_images(await self._engine.images({**self._labels, SNAPSHOT_LABEL: "yes"}))
