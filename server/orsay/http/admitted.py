"""WebSockets that are open, each with the key that let it in: they end when it is taken back."""

from __future__ import annotations

import asyncio

from ..auth import Keys
from ..errors import Unauthorized
from ..logs import get_logger
from .asgi import Headers

__all__ = ["Admitted"]

_log = get_logger(__name__)


class Admitted:
    """Cancels the task of each whose key is good no more, as soon as the keys have changed.

    A task is in here between ``enter`` and ``leave``. Where it is cancelled, ``revoked`` tells why.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._under_way: dict[asyncio.Task[object] | None, tuple[Headers, str]] = {}
        self._revoked: set[asyncio.Task[object] | None] = set()
        keys.watch(self._judge)

    def enter(self, headers: Headers, owner: str) -> asyncio.Task[object] | None:
        """The task that runs now works for ``owner``."""
        task = asyncio.current_task()
        self._under_way[task] = (headers, owner)
        return task

    def leave(self, task: asyncio.Task[object] | None) -> None:
        """It is done, or has been refused."""
        self._under_way.pop(task, None)
        if self._revoked:
            self.revoked(task)

    def revoked(self, task: asyncio.Task[object] | None) -> bool:
        """Its key was taken back, and nobody else cancelled it: it may go on, to say so."""
        if task is None or task not in self._revoked:
            return False
        self._revoked.discard(task)
        return task.uncancel() == 0

    def _judge(self) -> None:
        """The keys are others."""
        under_way = [(task, *entry) for task, entry in self._under_way.items() if task not in self._revoked]
        bad = [task for task, headers, owner in under_way if not self._is_good(headers, owner)]
        self._revoked.update(bad)
        for task in bad:
            if task is not None:
                task.cancel()
        if bad:
            _log.info("key_taken_back", connections=len(bad))

    def _is_good(self, headers: Headers, owner: str) -> bool:
        try:
            return self._keys.owner(headers) == owner
        except Unauthorized:
            return False
