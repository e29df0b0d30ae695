"""uvicorn's request-response cycle, with a fast path for complete bodies and complete answers.

uvicorn takes an answer as two messages through two coroutines, and checks each header with two regular
expressions. Most requests here arrive in one read and are answered in one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from .writing import OneWrite

__all__ = ["Cycle"]

_Application: TypeAlias = Callable[..., Awaitable[None]]
_NOBODY_WAITS = cast("asyncio.Event", SimpleNamespace(set=bool))


class Cycle(RequestResponseCycle):
    """One request of a connection; ``asgi.cycle_of`` finds it from its ``receive`` or ``send``."""

    transport: OneWrite  # type: ignore[assignment]  # wraps the transport of the connection

    # defaults on the class: setting them on each instance would double its cost
    access_log = False
    chunked_encoding = None
    expected_content_length = 0
    message_event = _NOBODY_WAITS
    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    _taken = False  # True once the body was taken

    def __init__(
        self,
        scope: Any,
        connection: HttpToolsProtocol,
        *,
        expects_100: bool,
        keep_alive: bool,
    ) -> None:
        self.scope = scope
        self._connection = connection
        self.transport = connection.transport  # type: ignore[assignment]  # see above
        self.flow = connection.flow
        self.logger = connection.logger
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expects_100
        self.body = bytearray()

    def start(self, app: _Application) -> None:
        """Start a task of the server in which the application answers."""
        self._task = self._connection.loop.create_task(self._run(app))
        self._connection.tasks.add(self._task)

    async def _run(self, app: _Application) -> None:
        try:
            await self.run_asgi(app)
        finally:
            self._connection.tasks.discard(self._task)
            del self._task  # an idle connection keeps its last cycle

    async def receive(self) -> Any:
        """As uvicorn's; the event is made when it is first needed."""
        if self.message_event is _NOBODY_WAITS:
            self.message_event = asyncio.Event()
            if self.body or not (self.more_body or self._taken):
                self.message_event.set()
        return await super().receive()

    def take_body(self) -> bytes | None:
        """The whole body if all of it has arrived; else None, and ``receive`` delivers it in parts."""
        if self.more_body or self.disconnected or self.response_complete:
            return None
        if self.flow.read_paused:
            self.flow.resume_reading()
        self._taken = True
        body, self.body = bytes(self.body), bytearray()
        return body

    def answer(self, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> bool:
        """Write a complete answer. False if it needs ``send``, which waits for a slow client.

        Raises RuntimeError for a header with a line break.
        """
        if self.disconnected:
            return True
        if self.response_started or self.flow.write_paused or self.default_headers:
            return False
        last = b"%b%d\r\n\r\n" if self.keep_alive else b"%b%d\r\nconnection: close\r\n\r\n"
        head = last % (_head(status, headers), len(body))
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write_whole(head if self.scope["method"] == "HEAD" else head + body)
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


@lru_cache(64)
def _head(status: int, headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """The head of an answer, up to its length."""
    parts = [STATUS_LINE[status]]
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    head = b"".join(parts)
    if head.count(b"\n") != len(headers) + 1 or head.count(b"\r") != len(headers) + 1 or b"\0" in head:
        raise RuntimeError("Invalid HTTP header value.")
    return head + b"content-length: "
