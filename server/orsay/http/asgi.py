"""Plain ASGI requests and answers, for the endpoints where every microsecond counts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeAlias

__all__ = [
    "Application",
    "Headers",
    "Receive",
    "Scope",
    "Send",
    "address_of",
    "break_off",
    "has_gone",
    "has_left",
    "replay",
    "send_json",
    "send_once",
]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = dict[bytes, bytes]

_JSON = (b"content-type", b"application/json")


def address_of(scope: Scope) -> str:
    """Address of the client: behind a trusted proxy, the one in its headers."""
    client = scope.get("client")
    return str(client[0]) if client else ""


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
    disconnected = getattr(getattr(receive, "__self__", None), "disconnected", None)
    if disconnected is not None:
        return bool(disconnected)
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
    return bool(getattr(getattr(receive, "__self__", None), "disconnected", False))


async def break_off(receive: Receive, send: Send) -> None:
    """Close the connection below an answer that has begun: nobody is to take it for a whole one."""
    cycle: Any = getattr(send, "__self__", None)
    if getattr(cycle, "response_complete", True):  # or it is not uvicorn that sends
        return
    cycle.transport.abort()
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_once(
    send: Send, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = (_JSON,)
) -> None:
    """A whole answer in one write; below our own server without messages (``Cycle.answer``)."""
    answer = getattr(getattr(send, "__self__", None), "answer", None)
    if answer is not None and answer(status, headers, body):
        return
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def send_json(
    send: Send, body: bytes, *, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    await send_once(send, status, body, (_JSON, *headers))
