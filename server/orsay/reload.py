"""Notices that Python files changed, for authors at work."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

__all__ = ["reload_on_change"]

_POLL_S = 0.5
_SKIP = frozenset({"__pycache__", "node_modules", "site-packages", ".venv", "venv"})


async def reload_on_change(reload: Callable[[], Awaitable[None]], folder: Path) -> None:
    """Await ``reload`` after each change of a Python file below ``folder``; never returns."""
    seen = await asyncio.to_thread(_times, folder)
    while True:
        await asyncio.sleep(_POLL_S)
        now = await asyncio.to_thread(_times, folder)
        if now != seen:
            seen = now
            await reload()


def _times(folder: Path) -> dict[str, int]:
    times = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIP and not name.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(root, name)
                try:
                    times[path] = os.stat(path).st_mtime_ns
                except OSError:  # gone between listing and looking
                    continue
    return times
