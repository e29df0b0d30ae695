"""Short words for what these tests do over and over with the client of the conformance suite."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from orsay.conformance.target import Reply, Target, TargetSession
from orsay_protocol.sse import Decoder, Event

__all__ = ["OpenStream", "error_of", "fault_of", "open_stream", "session_of", "text_of", "until"]


@asynccontextmanager
async def session_of(
    url: str, env: str, task: Mapping[str, Any] | None = None, *, key: str | None = None
) -> AsyncIterator[TargetSession]:
    """A session of ``env`` on ``task``; without one on the first task."""
    async with Target.open(url, env=env, api_key=key) as target:
        body = None if task is None else {"env_name": env, "task_spec": dict(task)}
        async with target.session(body) as session:
            yield session


def text_of(reply: Reply) -> str:
    result = reply.result
    assert result["ok"] is True, result
    return "".join(block["text"] for block in result["output"]["blocks"])


def error_of(reply: Reply) -> str:
    """Data of the error event that ends the stream."""
    assert reply.status == 200, reply.body
    assert reply.events[-1].event == "error", reply.body
    return reply.events[-1].data


def fault_of(reply: Reply) -> dict[str, Any]:
    """Data of the fault event, which comes just before error."""
    error_of(reply)
    assert reply.events[-2].event == "fault", reply.body
    fault: dict[str, Any] = json.loads(reply.events[-2].data)
    return fault


class OpenStream:
    """The stream of a call, read event by event; ``raw`` is everything that came so far."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._decoder = Decoder()
        self._events: list[Event] = []
        self.raw = b""

    async def event(self) -> Event:
        """The next event. Raises TimeoutError after ten seconds, EOFError at the end of the stream."""
        async with asyncio.timeout(10):
            while not self._events:
                try:
                    chunk = await anext(self._chunks)
                except StopAsyncIteration:
                    raise EOFError from None
                self.raw += chunk
                self._events += self._decoder.feed(chunk)
        return self._events.pop(0)


@asynccontextmanager
async def open_stream(
    session: TargetSession, name: str, value: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> AsyncIterator[OpenStream]:
    """A call whose connection breaks when the block is left before its end."""
    target = session.target
    body = {"name": name, "input": dict(value)}
    path, sent = target.path("/call"), session.headers(headers)
    async with target.http.stream("POST", path, json=body, headers=sent) as answer:
        assert answer.status_code == 200
        yield OpenStream(answer.aiter_raw())


async def until(condition: Callable[[], Awaitable[Any]], *, limit_s: float = 15.0) -> Any:
    """The first true value of ``condition``, asked again and again. Raises TimeoutError."""
    end = time.monotonic() + limit_s
    while True:
        value = await condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"it did not come true within {limit_s} s")
        await asyncio.sleep(0.05)
