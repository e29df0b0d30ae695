"""Daemon threads for blocking work: they neither keep the process alive nor occupy a shared pool."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_own_thread", "start_thread"]

_T = TypeVar("_T")


def start_thread(run: Callable[[], None], name: str) -> None:
    """Start a daemon thread."""
    threading.Thread(target=run, name=name, daemon=True).start()


async def in_own_thread(call: Callable[[], _T], *, name: str) -> _T:
    """Run ``call``, which may take long, on a new thread; a cancelled caller abandons it."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def settle(value: _T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)  # type: ignore[arg-type]  # None only where _T is

    def run() -> None:
        value: _T | None = None
        error: BaseException | None = None
        try:
            value = call()
        except Exception as exc:  # any error is passed to the caller
            error = exc
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(settle, value, error)

    start_thread(run, name)
    return await answer
