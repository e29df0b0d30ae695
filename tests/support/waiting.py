"""Polling for states of another process or thread, where no event can be awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import IO, Any

import httpx

__all__ = ["until", "until_healthy", "until_true"]


async def until(condition: Callable[[], Any], *, timeout_s: float = 20.0) -> None:
    """Return as soon as ``condition`` holds. Raise TimeoutError past the limit."""
    pause = 0.005
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(pause)
            pause = min(1.2 * pause, 0.03)


def until_true(condition: Callable[[], Any], *, timeout_s: float = 90.0, what: str = "") -> Any:
    """The first true value of ``condition``, for code without an event loop."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise TimeoutError(what or "it did not come about")


def until_healthy(
    url: str, exit_code: Callable[[], int | None], *, timeout_s: float, log: IO[bytes] | None = None
) -> None:
    """Return when ``/health`` answers 200.

    Raise RuntimeError past the limit, or if the process ends, with the end of its ``log`` as a note.
    """
    end = time.monotonic() + timeout_s
    # Certificates take longer to read than the question takes.
    with httpx.Client(trust_env=False, verify=False) as client:
        while time.monotonic() < end and exit_code() is None:
            try:
                if client.get(f"{url}/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    error = RuntimeError(f"no server on {url} within {timeout_s:.0f} s; exit code {exit_code()}")
    if log is not None:
        log.seek(0)
        error.add_note(log.read()[-4000:].decode(errors="replace"))
    raise error
