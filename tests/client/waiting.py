"""Waiting for what shows itself in no event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["until"]


async def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    """Returns as soon as ``condition`` holds. Raises TimeoutError past the limit."""
    async with asyncio.timeout(limit_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)
