"""One request, as endpoints get it: ASGI scope and channels, headers, and the owner.

Like Starlette's ``Request``, but with the owner, and without what plain ASGI has already: endpoints of a
session are called thousands of times a second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ..auth import ANYONE
from ..errors import BadRequest, TooLarge
from .asgi import JSON, Headers, Receive, Scope, Send, cycle_of, has_gone, send_once

__all__ = ["Endpoint", "Request"]

_LONGEST_ID = 256


class Request:
    """Endpoints answer it, or raise Refused, Faulted or a ValidationError instead.

    ``owner`` is the API key's hash, or ``ANYONE`` until the key is checked and on servers without keys.
    """

    __slots__ = ("headers", "owner", "receive", "scope", "send")

    def __init__(
        self, scope: Scope, headers: Headers, receive: Receive, send: Send, owner: str = ANYONE
    ) -> None:
        self.scope = scope
        self.headers = headers
        self.receive = receive
        self.send = send
        self.owner = owner

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        return str(self.scope["path"])

    def header(self, name: bytes) -> str | None:
        """The header of that lower-case name; None when it is missing or empty."""
        value = self.headers.get(name)
        return value.decode("latin-1") if value else None

    def session_id(self) -> str:
        """X-Session-ID, trimmed. Raises BadRequest when it is missing, empty or over 256 bytes."""
        sid = self.headers.get(b"x-session-id", b"").strip()
        if not sid:
            raise BadRequest("X-Session-ID header is required: send the session's id")
        if len(sid) > _LONGEST_ID:
            raise BadRequest(f"X-Session-ID is longer than {_LONGEST_ID} bytes")
        return sid.decode("latin-1")

    async def body(self, limit: int) -> bytes:
        """The whole body, of ``limit`` bytes at most. Raises TooLarge, before reading where the length is
        announced, and BadRequest when the connection closes before the end.
        """
        announced = self.headers.get(b"content-length")
        if announced is not None and announced.isdigit() and int(announced) > limit:
            raise TooLarge(f"the request body has {int(announced)} bytes; this server takes {limit}")
        cycle = cycle_of(self.receive)
        body = None if cycle is None else cycle.take_body()
        if body is None:
            message = await self.receive()
            body = bytes(message.get("body", b""))
            if message.get("more_body"):
                body = await self._rest(body, limit)
        if len(body) > limit:
            raise TooLarge(f"the request body is over the {limit} bytes that this server takes")
        return body

    async def _rest(self, first: bytes, limit: int) -> bytes:
        parts, size = [first], len(first)
        while size <= limit:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise BadRequest("the connection closed before the whole body had arrived")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if not message.get("more_body"):
                break
        return b"".join(parts)

    def has_gone(self) -> bool:
        """True once the client has disconnected."""
        return has_gone(self.receive)

    async def send_json(
        self, body: bytes, *, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        """Answer with JSON, in one write."""
        await send_once(self.send, status, body, (JSON, *headers))

    async def send_once(self, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        """Answer in one write; the length is added to ``headers``."""
        await send_once(self.send, status, body, headers)


Endpoint: TypeAlias = Callable[[Request], Awaitable[None]]
