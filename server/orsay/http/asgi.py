"""Plain ASGI requests and answers, for the endpoints where every microsecond counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeAlias

from .cycle import Cycle

__all__ = [
    "JSON",
    "Application",
    "Headers",
    "Receive",
    "Scope",
    "Send",
    "address_of",
    "break_off",
    "cycle_of",
    "has_gone",
    "has_left",
    "replay",
    "send_once",
]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = dict[bytes, bytes]

JSON = (b"content-type", b"application/json")
"""Header of an answer in JSON."""


def address_of(scope: Scope) -> str:
    """Address of the client: behind a trusted proxy, the one in its headers."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def cycle_of(channel: Receive | Send) -> Cycle | None:
    """The cycle whose ``receive`` or ``send`` it is; None below another server, or a middleware."""
    cycle = getattr(channel, "__self__", None)
    return cycle if isinstance(cycle, Cycle) else None


def _any_cycle_of(channel: Receive | Send) -> Any:
    """As ``cycle_of``, also for the cycles of an unchanged uvicorn, whichever parser it uses."""
    cycle = getattr(channel, "__self__", None)
    return cycle if hasattr(cycle, "disconnected") else None


def replay(body: bytes, receive: Receive) -> Receive:
    """``receive`` for an application that reads the body itself, when it has been read already."""
    parts = [body]

    async def again() -> MutableMapping[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        return await receive()

    return again


def has_gone(receive: Receive) -> bool:
    """True if the client has disconnected; found without waiting and without a task.

    uvicorn keeps a flag. Elsewhere ``receive`` blocks while the client is there, so one step of it is enough;
    the step is taken back.
    """
    cycle = _any_cycle_of(receive)
    if cycle is not None:
        return bool(cycle.disconnected)
    waiting = receive()
    if not isinstance(waiting, Coroutine):
        return False
    try:
        waiting.send(None)
    except StopIteration as stop:
        return bool(stop.value["type"] == "http.disconnect")
    waiting.close()
    return False


def has_left(receive: Receive) -> bool:
    """``has_gone`` before the body was read, where no step can be taken back: False unless uvicorn knows."""
    cycle = _any_cycle_of(receive)
    return cycle is not None and bool(cycle.disconnected)


async def break_off(receive: Receive, send: Send) -> None:
    """Close the connection below an answer that has begun: nobody is to take it for a whole one."""
    cycle = _any_cycle_of(send)
    if cycle is None or cycle.response_complete:
        return
    cycle.transport.abort()
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_once(
    send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = (JSON,)
) -> None:
    """A whole answer in one write; below our own server without messages (``Cycle.answer``)."""
    cycle = cycle_of(send)
    if cycle is not None and cycle.answer(status, headers, body):
        return
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
