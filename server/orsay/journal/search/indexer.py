"""Background indexing for text search, after a search that found sessions not yet indexed."""

from __future__ import annotations

import asyncio

from ...errors import JournalDown
from ...logs import get_logger
from ..write.writer import Writer
from .query import catch_up

__all__ = ["CatchUp"]

_log = get_logger(__name__)
_WORK_S = 0.05
_REST_S = 0.2  # a fifth of one core at most: sessions are played meanwhile


class CatchUp:
    """Background indexer of a server: runs until all sessions are indexed, or the journal is down."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._task: asyncio.Task[None] | None = None

    @property
    def works(self) -> bool:
        return self._task is not None and not self._task.done()

    def go_on(self) -> None:
        """Index the remaining sessions in the background. May be called repeatedly."""
        if not self.works:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """Stop, before the journal is closed."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _work(self) -> None:
        try:
            left = 1
            while left:
                await asyncio.sleep(_REST_S)
                left = await self._writer.read(lambda connection: catch_up(connection, _WORK_S))
        except JournalDown as down:
            _log.warning("search_index_stopped", reason=str(down), hint="the next search continues it")
