"""Waiting for what happens in another process or thread, where no event can be awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

__all__ = ["until", "until_true"]


async def until(condition: Callable[[], Any], *, timeout_s: float = 20.0) -> None:
    """Return as soon as ``condition`` holds. Raise TimeoutError past the limit."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


def until_true(condition: Callable[[], Any], *, timeout_s: float = 90.0, what: str = "") -> Any:
    """The first true value of ``condition``, for code without an event loop."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise TimeoutError(what or "it did not come about")
