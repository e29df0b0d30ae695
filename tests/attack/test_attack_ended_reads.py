"""Ending a request that still runs leaves no connection open, in whichever moment it is ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import anyio
import httpx
import orsay.conformance
import pytest
from orsay.conformance.checks.apart import _running
from orsay.conformance.concurrent import at_once
from orsay.conformance.failures import Failed, NotSupported
from orsay.conformance.probe import Waiting
from orsay.conformance.target import Target, TargetSession


class _Stream(httpx.AsyncByteStream):
    """Closes over several turns of the loop and, as httpcore does, shielded from cancellation."""

    def __init__(self) -> None:
        self.closing, self.closed = asyncio.Event(), False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"event: task_id\n\n"

    async def aclose(self) -> None:
        with anyio.CancelScope(shield=True):
            self.closing.set()
            for _ in range(20):
                await asyncio.sleep(0)
            self.closed = True


async def test_a_request_that_is_ended_while_it_closes_is_closed_to_the_end() -> None:
    stream = _Stream()
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=stream))
    async with httpx.AsyncClient(base_url="http://server", transport=transport) as http:
        target = Target("http://server", http, None, env="env")
        waiting = Waiting("rest", "seconds", {"seconds": 1}, 1.0)
        target.probe._asked["waiting"] = asyncio.ensure_future(asyncio.sleep(0, waiting))
        async with _running(TargetSession(target, "a session"), 1) as call:
            await stream.closing.wait()
    assert stream.closed
    assert call.done()


async def test_a_request_that_fails_leaves_none_that_was_made_beside_it() -> None:
    async def fail() -> None:
        raise Failed("the first answer is wrong")

    async def go_on() -> None:
        await asyncio.sleep(0.01)
        ended.append(True)

    ended: list[bool] = []
    with pytest.raises(Failed, match="the first answer is wrong"):
        await at_once(fail(), go_on(), go_on())
    assert ended == [True, True]


async def test_what_is_wrong_counts_before_what_is_missing_and_what_hangs() -> None:
    async def lack() -> None:
        raise NotSupported("no such tool")

    async def fail() -> None:
        raise Failed("the first answer is wrong")

    with pytest.raises(Failed):
        await at_once(lack(), fail())
    with patch("orsay.conformance.concurrent._REST_S", 0.01), pytest.raises(Failed):
        await at_once(asyncio.sleep(60), fail(), asyncio.sleep(60))


def test_no_check_leaves_requests_behind() -> None:
    """All that checks ask at the same time, they ask by ``at_once``."""
    folder = Path(orsay.conformance.__file__).parent / "checks"
    assert not [path.name for path in folder.glob("*.py") if "asyncio.gather(*" in path.read_text()]
