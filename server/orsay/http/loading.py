"""Loading of the environments at the start of a server; early requests wait for it, for a bounded time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

__all__ = ["Loading"]

_LOOK_S = 0.25
_AT_ONCE = frozenset({"console", "docs", "health", "metrics", "openapi.json", "ready", "redoc", "version"})
"""First or last parts of the paths that need no environment, or report that there is none yet."""


class Loading:
    """Loading phase of the environments, which ``finish`` ends.

    A waiting request holds only its connection: its body is not read yet, and the limit of connections is the
    limit of waiting requests.
    """

    def __init__(self, wait_s: float, stopping: Callable[[], bool]) -> None:
        self.over = False
        self._wait_s = wait_s
        self._stopping = stopping
        self._finished = asyncio.Event()

    def finish(self) -> None:
        """End the phase: the environments are loaded, and sessions may be opened."""
        self.over = True
        self._finished.set()

    async def wait(self, path: str, gone: Callable[[], bool]) -> None:
        """Return when the load is over, the time is up, the server stops or the client is ``gone``."""
        parts = path.strip("/").split("/")
        if _AT_ONCE.intersection((parts[0], parts[-1])):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait_s):
                while not (self.over or gone() or self._stopping()):
                    await self._look()

    async def _look(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._finished.wait()
