"""How long a request waits for the environments."""

from __future__ import annotations

import asyncio

import pytest
from orsay.http.loading import Loading

LONG_S = 600.0


def never() -> bool:
    return False


async def waits(loading: Loading, path: str = "/create") -> bool:
    """A request still waits after a moment."""
    waiting = asyncio.ensure_future(loading.wait(path, never))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    found = not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return found


@pytest.mark.parametrize("path", ["/create", "/echo/tools", "/list_environments", "/ws", "/mcp/echo"])
async def test_what_needs_an_environment_waits_until_there_is_one(path: str) -> None:
    loading = Loading(LONG_S, never)
    assert await waits(loading, path)
    waiting = asyncio.ensure_future(loading.wait(path, never))
    await asyncio.sleep(0)
    loading.finish()
    async with asyncio.timeout(5):
        await waiting
    assert loading.over and not await waits(loading, path)


@pytest.mark.parametrize(
    "path",
    ["/health", "/ready", "/echo/health", "/version", "/metrics", "/console/api/environments", "/docs/"],
)
async def test_what_reports_the_state_of_the_server_does_not_wait(path: str) -> None:
    assert not await waits(Loading(LONG_S, never), path)


@pytest.mark.parametrize("limit_s", [0, 0.01])
async def test_the_wait_has_a_limit(limit_s: float) -> None:
    async with asyncio.timeout(5):
        await Loading(limit_s, never).wait("/create", never)


async def test_nobody_waits_for_a_client_that_has_left() -> None:
    left = False
    waiting = asyncio.ensure_future(Loading(LONG_S, never).wait("/create", lambda: left))
    await asyncio.sleep(0)
    left = True
    async with asyncio.timeout(5):
        await waiting


async def test_nobody_waits_for_a_server_that_stops() -> None:
    stopping = False
    waiting = asyncio.ensure_future(Loading(LONG_S, lambda: stopping).wait("/create", never))
    await asyncio.sleep(0)
    stopping = True
    async with asyncio.timeout(5):
        await waiting
