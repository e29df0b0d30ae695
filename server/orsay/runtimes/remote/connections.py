"""Pool of HTTP/1.1 connections to one server; answers are parsed by httptools.

A client library would cost a gateway more per call than all its other work.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import cast

import httptools

__all__ = ["Connection", "Headers", "Pool"]

_IDLE_S = 4.0  # below uvicorn's 5 s: a server must not close a connection that is about to be used
_HIGH_WATER_BYTES = 512 * 1024


class Headers(dict[str, str]):
    """Headers of an answer; ``get`` finds them in any letter case."""

    def get(self, name: str, default: str = "") -> str:  # type: ignore[override]  # "" stands for none
        return super().get(name.lower(), default)


class Connection(asyncio.Protocol):
    """One connection, one answer at a time. ``error`` is the reason why it is unusable."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.idle_since = 0.0
        self.status = 0
        self.headers = Headers()
        self.complete = True
        self._headed = False
        self._reusable = False
        self._until_closed = False
        self._body: list[bytes] = []
        self._size = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._loop = asyncio.get_running_loop()

    @property
    def reusable(self) -> bool:
        """True if the last answer was read completely and the server keeps the connection open."""
        return self.complete and self._reusable and self.error is None and not self._transport.is_closing()

    def send(self, request: bytes) -> None:
        """Write a request; the connection is new or ``reusable``."""
        self.status, self.headers = 0, Headers()
        self.complete = self._headed = self._reusable = self._until_closed = False
        self._body, self._size = [], 0
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)

    async def head(self) -> None:
        """Wait for status and headers. Raises OSError."""
        while not self._headed:
            if self.error is not None:
                raise self.error
            await self._wait()

    async def read(self) -> bytes:
        """Wait for more of the body; empty at the end. Raises OSError."""
        while not self._body:
            if self.complete:
                return b""
            if self.error is not None:
                raise self.error
            await self._wait()
        data = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body, self._size = [], 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return data

    @property
    def at_end(self) -> bool:
        """True once the whole answer was read."""
        return self.complete and not self._body

    def close(self) -> None:
        self.error = self.error or ConnectionResetError("closed")
        self._transport.abort()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not subclasses

    def data_received(self, data: bytes) -> None:
        if self.complete:  # there was no request
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as exc:
            self.error = ConnectionAbortedError(f"no HTTP: {exc}")
            self._transport.abort()
        if self._size > _HIGH_WATER_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._until_closed and exc is None:
            self.complete = True
        if self.error is None:
            self.error = (
                exc if isinstance(exc, OSError) else ConnectionResetError("the server closed the connection")
            )
        self._wake()

    # the parser

    def on_message_begin(self) -> None:
        if self.complete:  # there was no second request
            self.error = ConnectionAbortedError("more than one answer to a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.complete:
            return
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self._headed = True
            chunked = "chunked" in self.headers.get("transfer-encoding").lower()
            self._until_closed = not chunked and "content-length" not in self.headers

    def on_body(self, data: bytes) -> None:
        if self.complete:
            return
        self._body.append(data)
        self._size += len(data)

    def on_message_complete(self) -> None:
        if self.complete:
            return
        if self.status < 200:  # an interim answer
            self.headers = Headers()
            return
        self.complete = True
        self._reusable = self._parser.should_keep_alive()


class Pool:
    """Connection pool for ``host`` and ``port``, with one connection for each request in flight."""

    def __init__(self, host: str, port: int, *, secure: bool, connect_timeout_s: float) -> None:
        self._host = host
        self._port = port
        self._ssl = ssl.create_default_context() if secure else None
        self._connect_timeout_s = connect_timeout_s
        self._loop = asyncio.get_running_loop()
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def acquire(self) -> Connection:
        """An unused connection. Raises OSError, also for errors of TLS, and TimeoutError."""
        after = self._loop.time() - _IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since > after and connection.reusable:
                return connection
            self.drop(connection)
        if self._closed:
            raise ConnectionAbortedError("this server is stopping")
        async with asyncio.timeout(self._connect_timeout_s):
            _, connection = await self._loop.create_connection(
                Connection, self._host, self._port, ssl=self._ssl
            )
        self._open.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Return a connection to the pool."""
        if not connection.reusable or self._closed:
            self.drop(connection)
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(_IDLE_S, self._tidy)

    def drop(self, connection: Connection) -> None:
        """Close a connection that cannot be reused."""
        self._open.discard(connection)
        connection.close()

    def _tidy(self) -> None:
        self._timer = None
        after = self._loop.time() - _IDLE_S
        while self._idle and self._idle[0].idle_since <= after:
            self.drop(self._idle.popleft())
        if self._idle:
            self._timer = self._loop.call_at(self._idle[0].idle_since + _IDLE_S, self._tidy)

    async def close(self) -> None:
        """Close all, and wait until the system has closed their sockets."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            self.drop(connection)
        await asyncio.sleep(0)
