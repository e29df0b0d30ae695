"""Answers as streams of events: an id at once, signs of life while the work goes on, then its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from orsay_protocol.sse import PING, encode_event

from ...http.request import Request

__all__ = ["answer_later", "send_failure"]

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
_PING_S = 10.0  # the client connects anew after 30 s without a byte
_FIRST_PING_S = 2.0  # an early one: a client that left before it had the id is noticed
_PIECE = 256 * 1024


async def answer_later(
    request: Request,
    task_id: str,
    work: asyncio.Future[Any],
    encode: Callable[[asyncio.Future[Any]], Awaitable[bytes]],
) -> bool:
    """Stream until ``work`` is done, and what ``encode`` makes of it; False if the client left before.

    The work goes on when the client leaves.
    """
    send = request.send
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": encode_event("task_id", task_id), "more_body": True})
    pause = _FIRST_PING_S
    while not work.done():
        await asyncio.wait([work], timeout=pause)
        pause = _PING_S
        if request.has_gone():
            return False
        if not work.done():
            await send({"type": "http.response.body", "body": PING, "more_body": True})
    events = await encode(work)
    for at in range(0, len(events), _PIECE):
        if request.has_gone():
            return False
        await send({"type": "http.response.body", "body": events[at : at + _PIECE], "more_body": True})
    await send({"type": "http.response.body", "body": b""})
    return not request.has_gone()


async def send_failure(request: Request, text: str) -> None:
    """Answer with an event ``error``, which the client does not ask again for."""
    await request.send_once(200, encode_event("error", text), _HEADERS)
