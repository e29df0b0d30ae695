"""WebSocket loop for an OpenEnv client: one answer for each message, in order, until it disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ...http.asgi import Receive, Send

__all__ = ["Conversation", "serve_socket"]

Conversation = Callable[[str], Awaitable[str | None]]
"""The answer to a message; None ends the conversation."""

_WAITING = 64
_NORMAL = 1000
_TOO_MANY = 1008


async def serve_socket(receive: Receive, send: Send, answer: Conversation) -> None:
    """Accept the connection and answer until one side ends it.

    A disconnect cancels the running request. A client that queues too many messages is disconnected.
    """
    await send({"type": "websocket.accept"})
    messages: asyncio.Queue[str] = asyncio.Queue(_WAITING)
    reading = asyncio.create_task(_read(receive, messages))
    answering = asyncio.create_task(_answer(messages, send, answer))
    try:
        await asyncio.wait((reading, answering), return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            answering.result()
            await send({"type": "websocket.close", "code": _NORMAL})
        elif not reading.result():
            await send({"type": "websocket.close", "code": _TOO_MANY, "reason": "too many messages at once"})
    finally:
        for task in (reading, answering):
            task.cancel()
        await asyncio.gather(reading, answering, return_exceptions=True)


async def _read(receive: Receive, messages: asyncio.Queue[str]) -> bool:
    """Queue messages until the client disconnects; False when the queue is full."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return True
        text = message.get("text")
        if text is None:
            text = (message.get("bytes") or b"").decode(errors="replace")
        try:
            messages.put_nowait(text)
        except asyncio.QueueFull:
            return False


async def _answer(messages: asyncio.Queue[str], send: Send, answer: Conversation) -> None:
    while True:
        reply = await answer(await messages.get())
        if reply is None:
            return
        await send({"type": "websocket.send", "text": reply})
