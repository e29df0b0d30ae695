"""Requests of a check that are made at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["at_once"]

T = TypeVar("T")


async def at_once(*awaitables: Awaitable[T]) -> list[T]:
    """The results, in order; once all have ended, the first exception in that order is raised.

    ``asyncio.gather`` raises while the others go on. They would run into the checks that follow, and be
    cancelled at the end, where a connection that was just made stays open: ``connect_tcp`` of anyio drops it.
    """
    ended = await asyncio.gather(*awaitables, return_exceptions=True)
    results = []
    for result in ended:
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
