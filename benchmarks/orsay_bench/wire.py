"""Minimal HTTP/1.1 client that checks answers: raw sockets, one request in flight per connection.

It checks the status, that the body is complete (Content-Length or chunked) and, when asked, that the
body holds certain bytes. Everything else would cost the generator time that the server could use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import cast
from urllib.parse import urlsplit

CHUNKED_END = b"\r\n0\r\n\r\n"  # the last chunk, with the line end of the chunk before it

Done = Callable[["Channel", float, str, bytes], None]


def _ignore(channel: Channel, seconds: float, error: str, raw: bytes) -> None:
    return None


class Target:
    """Address of the server, and the bytes of a request to it."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or 80
        self._prefix = parts.path.rstrip("/")
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._tail = (
            f" HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nUser-Agent: orsay-bench\r\nAccept: */*\r\n{extra}"
        )

    def request(self, method: str, path: str, sid: str = "", body: bytes = b"") -> bytes:
        head = f"{method} {self._prefix}{path}{self._tail}"
        if sid:
            head += f"X-Session-ID: {sid}\r\n"
        if body:
            head += "Content-Type: application/json\r\n"
        if method == "POST":
            head += f"Content-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body

    def upgrade(self, path: str) -> bytes:
        """A WebSocket handshake; the key is fixed because nobody here checks the answer to it."""
        return (
            f"GET {self._prefix}{path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: b3JzYXktYmVuY2gtMDAwMQ==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n"
        ).encode()


class Channel(asyncio.Protocol):
    """One connection with at most one request in flight; `done` is called once per answer."""

    __slots__ = ("buffer", "closed", "done", "must", "sent_at", "transport")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.done: Done = _ignore
        self.must = b""
        self.buffer = b""
        self.sent_at = 0.0
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none of asyncio's classes

    def send(self, request: bytes, must: bytes = b"") -> None:
        self.must = must
        self.sent_at = time.perf_counter()
        if self.closed or self.transport is None:
            self._answer("closed", b"")
            return
        self.transport.write(request)

    def _answer(self, error: str, raw: bytes) -> None:
        seconds = time.perf_counter() - self.sent_at
        self.sent_at = 0.0
        self.done(self, seconds, error, raw)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self.sent_at:
            self._answer("lost", b"")

    def close(self) -> None:
        if self.transport is not None and not self.closed:
            self.transport.close()


class HttpChannel(Channel):
    """One keep-alive HTTP connection."""

    __slots__ = ("needed",)

    def __init__(self) -> None:
        super().__init__()
        self.needed = 0

    def send(self, request: bytes, must: bytes = b"") -> None:
        self.buffer, self.needed = b"", 0
        super().send(request, must)

    def data_received(self, data: bytes) -> None:
        buffer = self.buffer = self.buffer + data if self.buffer else data
        if self.needed == 0:
            self.needed = answer_length(buffer)
            if self.needed == 0:
                return
        if len(buffer) < self.needed if self.needed > 0 else not buffer.endswith(CHUNKED_END):
            return
        error = ""
        if buffer[9:12] != b"200":
            error = "http " + buffer[9:12].decode("latin1")
        elif self.must and self.must not in buffer:
            error = "body"
        self._answer(error, buffer)


def answer_length(buffer: bytes) -> int:
    """Bytes of the whole answer; 0 while its head is incomplete, -1 when only the last chunk will tell."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        return 0
    head = buffer[:end].lower()
    start = head.find(b"content-length:")
    if start < 0:
        return -1
    stop = head.find(b"\r\n", start)
    return end + 4 + int(head[start + 15 : stop if stop >= 0 else end])


async def connect(target: Target, count: int, at_once: int = 100) -> list[HttpChannel]:
    loop = asyncio.get_running_loop()
    channels: list[HttpChannel] = []
    while len(channels) < count:
        batch = min(at_once, count - len(channels))
        made = await asyncio.gather(
            *(loop.create_connection(HttpChannel, target.host, target.port) for _ in range(batch))
        )
        channels += [protocol for _, protocol in made]
    return channels


async def ask(
    channel: Channel, request: bytes, must: bytes = b"", timeout_s: float = 60.0
) -> tuple[float, str, bytes]:
    """One request, and its answer as (seconds, error, raw bytes)."""
    answer: asyncio.Future[tuple[float, str, bytes]] = asyncio.get_running_loop().create_future()

    def done(_: Channel, seconds: float, error: str, raw: bytes) -> None:
        if not answer.done():
            answer.set_result((seconds, error, raw))

    channel.done = done
    channel.send(request, must)
    return await asyncio.wait_for(answer, timeout_s)


async def drain(
    channels: Iterable[Channel], requests: list[bytes], must: bytes = b"", timeout_s: float = 300.0
) -> tuple[float, dict[str, int]]:
    """Send every request once, as fast as the connections allow; returns (seconds, errors by kind)."""
    waiting = iter(requests)
    errors: dict[str, int] = {}
    left = len(requests)
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(channel: Channel, seconds: float, error: str, raw: bytes) -> None:
        nonlocal left
        if error:
            errors[error] = errors.get(error, 0) + 1
        left -= 1
        if left == 0 and not finished.done():
            finished.set_result(None)
        following = next(waiting, None)
        if following is not None:
            channel.send(following, must)

    started = time.perf_counter()
    for channel in channels:
        channel.done = done
        first = next(waiting, None)
        if first is None:
            break
        channel.send(first, must)
    if requests:
        await asyncio.wait_for(finished, timeout_s)
    return time.perf_counter() - started, errors
