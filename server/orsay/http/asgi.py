"""Functions on plain ASGI messages, for endpoints where a framework would cost too much."""

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
    """A ``receive`` that delivers a body again, for an application that reads the body itself."""
    parts = [body]

    async def again() -> MutableMapping[str, Any]:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        return await receive()

    return again


def has_gone(receive: Receive) -> bool:
    """True if the client has disconnected; determined without waiting and without a task.

    uvicorn has a flag. With other servers ``receive`` blocks while the client is connected, so one step of
    its coroutine, which is then closed, gives the answer.
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
    """``has_gone`` before the body is read, by uvicorn's flag only: a step of ``receive`` could lose data."""
    cycle = _any_cycle_of(receive)
    return cycle is not None and bool(cycle.disconnected)


async def break_off(receive: Receive, send: Send) -> None:
    """Abort the connection of a partial answer, so that no client mistakes it for a complete one."""
    cycle = _any_cycle_of(send)
    if cycle is None or cycle.response_complete:
        return
    cycle.transport.abort()
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_once(
    send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = (JSON,)
) -> None:
    """Send a complete answer in one write; with our own server without ASGI messages (``Cycle.answer``)."""
    cycle = cycle_of(send)
    if cycle is not None and cycle.answer(status, headers, body):
        return
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
