"""Open WebSockets with their API keys: a WebSocket ends when its key is revoked."""

from __future__ import annotations

import asyncio

from ..auth import Keys
from ..errors import Unauthorized
from ..logs import get_logger
from .request import Request

__all__ = ["Admitted"]

_log = get_logger(__name__)


class Admitted:
    """Registry of tasks with the key of their request; a change of the keys cancels tasks of revoked ones.

    A task is registered between ``enter`` and ``leave``.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._under_way: dict[asyncio.Task[object] | None, Request] = {}
        self._revoked: set[asyncio.Task[object] | None] = set()
        keys.watch(self._judge)

    def enter(self, request: Request) -> asyncio.Task[object] | None:
        """Register the current task, which serves the request."""
        task = asyncio.current_task()
        self._under_way[task] = request
        return task

    def leave(self, task: asyncio.Task[object] | None) -> None:
        """Remove a task that is done, or was refused."""
        self._under_way.pop(task, None)
        if self._revoked:
            self.revoked(task)

    def revoked(self, task: asyncio.Task[object] | None) -> bool:
        """True if the task was cancelled because its key was revoked; uncancels it, so that it can answer."""
        if task is None or task not in self._revoked:
            return False
        self._revoked.discard(task)
        return task.uncancel() == 0

    def _judge(self) -> None:
        """Cancel the tasks whose key is no longer accepted."""
        under_way = [each for each in self._under_way.items() if each[0] not in self._revoked]
        bad = [task for task, request in under_way if not self._is_good(request)]
        self._revoked.update(bad)
        for task in bad:
            if task is not None:
                task.cancel()
        if bad:
            _log.info("key_revoked", connections=len(bad))

    def _is_good(self, request: Request) -> bool:
        try:
            return self._keys.owner(request.headers) == request.owner
        except Unauthorized:
            return False
