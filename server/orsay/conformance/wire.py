"""Minimal HTTP/1.1 client with control over bytes and connections, also for invalid requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["Connection", "RawReply", "connection"]

_CLOSE_LIMIT_S = 1.0
_READ_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class RawReply:
    """An answer; header names are in lower case, ``body`` is decoded from chunks."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One connection that takes one request after another."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        host: str,
        headers: Mapping[str, str],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._headers = {"Host": host, **headers}

    async def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RawReply:
        """Send a request and read the whole answer. Raises TimeoutError or ConnectionError."""
        await self.send(method, path, headers, body)
        async with asyncio.timeout(_READ_LIMIT_S):
            return await self._reply(method)

    async def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        """Send a request; only ``read_until`` reads its answer."""
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in {**self._headers, **(headers or {})}.items()]
        if body or method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        self._writer.write("\r\n".join([*lines, "", ""]).encode("utf-8") + body)
        await self._writer.drain()

    async def read_until(self, mark: bytes) -> None:
        """Read the answer up to that text. Raises TimeoutError, or EOFError if it ends before."""
        async with asyncio.timeout(_READ_LIMIT_S):
            await self._reader.readuntil(mark)

    async def _reply(self, method: str) -> RawReply:
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError as exc:
            raise ConnectionError("the server closed the connection instead of answering") from exc
        status_line, *lines = head.strip().split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        status = int(status_line.split()[1])
        if method == "HEAD" or status in (204, 304):
            return RawReply(status, headers, b"")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return RawReply(status, headers, await self._chunked())
        if "content-length" in headers:
            return RawReply(status, headers, await self._reader.readexactly(int(headers["content-length"])))
        return RawReply(status, headers, await self._reader.read())

    async def _chunked(self) -> bytes:
        body = bytearray()
        while True:
            size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
            body += (await self._reader.readexactly(size + 2))[:size]
            if size == 0:
                return bytes(body)


@asynccontextmanager
async def connection(url: str, headers: Mapping[str, str]) -> AsyncIterator[Connection]:
    """Connect to the server of ``url``; ``headers`` go with every request."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    context = ssl.create_default_context() if secure else None
    port = parts.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context, limit=1 << 26)
    try:
        yield Connection(reader, writer, parts.netloc, headers)
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                await writer.wait_closed()
