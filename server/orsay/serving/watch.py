"""File watcher for Python code, for development."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

__all__ = ["Watch"]

_POLL_S = 0.5
_SKIP = frozenset({"__pycache__", "node_modules", "site-packages", ".venv", "venv"})


class Watch:
    """Watcher of Python files below some folders. Create it before loading code, to miss no change."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._tops = _without_inner({folder.resolve() for folder in folders})
        self._seen = _times(self._tops)

    async def reload_on_change(self, reload: Callable[[], Awaitable[None]]) -> None:
        """Await ``reload`` after each change; never returns."""
        while True:
            await asyncio.sleep(_POLL_S)
            now = await asyncio.to_thread(_times, self._tops)
            if now != self._seen:
                self._seen = now
                await reload()


def _without_inner(folders: set[Path]) -> list[Path]:
    return sorted(folder for folder in folders if not folders & set(folder.parents))


def _times(tops: Iterable[Path]) -> dict[str, int]:
    times = {}
    for root, folders, files in (each for top in tops for each in os.walk(top)):
        folders[:] = [name for name in folders if name not in _SKIP and not name.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(root, name)
                try:
                    times[path] = os.stat(path).st_mtime_ns
                except OSError:  # removed after the folder was listed
                    continue
    return times
