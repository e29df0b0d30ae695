"""Requests of a check that are made at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from .failures import Failed

__all__ = ["at_once"]

T = TypeVar("T")
_REST_S = 5.0


async def at_once(*requests: Coroutine[Any, Any, T]) -> list[T]:
    """The results, in order, or the first failure, once all have ended.

    ``asyncio.gather`` raises while the others go on. They would run into the checks that follow, and be
    cancelled at the end, where a connection that was just made stays open: ``connect_tcp`` of anyio drops it.
    Here they have some seconds to end before they are cancelled.
    """
    tasks = [asyncio.ensure_future(each) for each in requests]
    if not tasks:
        return []
    try:
        _, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        if rest:
            await asyncio.wait(rest, timeout=_REST_S)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [each for each in ended if isinstance(each, BaseException)]
    if errors:
        raise min(errors, key=_rank)
    return [task.result() for task in tasks]


def _rank(error: BaseException) -> int:
    """What is wrong with the server before what it lacks; what was cancelled for another failure last."""
    if isinstance(error, Failed):
        return 0
    return 2 if isinstance(error, asyncio.CancelledError) else 1
