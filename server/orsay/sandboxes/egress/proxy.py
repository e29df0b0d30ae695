"""An HTTP proxy (RFC 9110) for one sandbox: tunnels, and requests, to the names of its allow-list."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

import h11

from ...authoring.sandbox.allow_list import AllowList
from .outside import NotReached, Outside, Streams

__all__ = ["Proxy"]

_HEAD_LIMIT_S = 60.0
_CONNECTIONS = 128
_PIECE = 64 * 1024
_WEB_PORT = 80
_OF_THIS_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"te", b"upgrade", b"host")
)
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class _Refusal(Exception):
    """What is answered instead."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class _Target:
    name: str
    port: int
    authority: str
    path: str
    """Empty for a tunnel."""


class Proxy:
    """Serves connections; ``on_refused`` gets the text of each refusal."""

    def __init__(
        self, allowed: AllowList, on_refused: Callable[[str], None], outside: Outside | None = None
    ) -> None:
        self._allowed = allowed
        self._on_refused = on_refused
        self._outside = outside or Outside()
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end: a tunnel, or a single request."""
        self._open += 1
        try:
            await self._serve((reader, writer))
        except (OSError, EOFError):
            return  # either side has gone
        finally:
            self._open -= 1
            writer.close()

    async def _serve(self, client: Streams) -> None:
        reader, writer = client
        http = h11.Connection(h11.SERVER)
        try:
            async with asyncio.timeout(_HEAD_LIMIT_S):
                request = await _request(http, reader)
            target = _target(request)
            upstream = await self._connected(target)
        except _Refusal as exc:
            await _answer(writer, exc)
            return
        try:
            if target.path:
                await _together(
                    _send_request(request, target, http, reader, upstream[1]),
                    _copy_answer(upstream[0], writer),
                )
            else:
                writer.write(_ESTABLISHED)
                early, _ = http.trailing_data
                upstream[1].write(early)
                await _together(_copy(reader, upstream[1]), _copy(upstream[0], writer))
        finally:
            upstream[1].close()

    async def _connected(self, target: _Target) -> Streams:
        """Raises _Refusal."""
        if self._open > _CONNECTIONS:
            raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{_CONNECTIONS} connections are open already")
        objection = self._allowed.objection(target.name, target.port)
        if objection is not None and _is_address(target.name):
            objection = f"{target.name} is an address, and the allow-list of this sandbox has names"
        if objection is not None:
            self._on_refused(objection)
            raise _Refusal(HTTPStatus.FORBIDDEN, objection)
        try:
            return await self._outside.connect(target.name, target.port)
        except NotReached as exc:
            if exc.refused:
                self._on_refused(str(exc))
            status = HTTPStatus.FORBIDDEN if exc.refused else HTTPStatus.BAD_GATEWAY
            raise _Refusal(status, str(exc)) from exc


async def _request(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    """Raises _Refusal for what is no request, EOFError where none comes."""
    try:
        event = await _next(http, reader)
    except h11.RemoteProtocolError as exc:
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"not a request of HTTP/1.1: {exc}") from exc
    if not isinstance(event, h11.Request):
        raise EOFError
    return event


async def _next(http: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := http.next_event()) is h11.NEED_DATA:
        http.receive_data(await reader.read(_PIECE))
    return event


def _target(request: h11.Request) -> _Target:
    """Raises _Refusal for a target that is no name with a port, nor a URL of http."""
    text = request.target.decode("ascii", "replace")
    is_tunnel = request.method == b"CONNECT"
    try:
        parts = urlsplit(f"//{text}" if is_tunnel else text)
        port = parts.port
    except ValueError as exc:
        raise _Refusal(HTTPStatus.BAD_REQUEST, f"{text!r} is no target of a request: {exc}") from exc
    if not parts.hostname or (port is None if is_tunnel else parts.scheme != "http"):
        raise _Refusal(
            HTTPStatus.BAD_REQUEST, f"this is a proxy for http and tunnels, which {text!r} is not for"
        )
    if is_tunnel:
        assert port is not None
        return _Target(parts.hostname, port, text, "")
    authority = parts.netloc.rpartition("@")[2]
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    return _Target(parts.hostname, _WEB_PORT if port is None else port, authority, path)


def _is_address(name: str) -> bool:
    with contextlib.suppress(ValueError):
        ip_address(name)
        return True
    return False


async def _send_request(
    request: h11.Request,
    target: _Target,
    http: h11.Connection,
    reader: asyncio.StreamReader,
    upstream: asyncio.StreamWriter,
) -> None:
    """Write one request anew, with its body: no other can hide in it. What comes after it is dropped."""
    out = h11.Connection(h11.CLIENT)
    kept: Iterable[tuple[bytes, bytes]] = ((k, v) for k, v in request.headers if k not in _OF_THIS_HOP)
    headers = [(b"host", target.authority.encode()), *kept, (b"connection", b"close")]
    event: object = h11.Request(method=request.method, target=target.path.encode(), headers=headers)
    while isinstance(event, (h11.Request, h11.Data, h11.EndOfMessage)):
        upstream.write(out.send(event) or b"")
        await upstream.drain()
        if isinstance(event, h11.EndOfMessage):
            break
        event = await _next(http, reader)

    while await reader.read(_PIECE):
        continue
    if upstream.can_write_eof():
        upstream.write_eof()


async def _copy_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy the answer to a request. Raises EOFError at its end, which is that of the connection."""
    await _copy(reader, writer)
    raise EOFError


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy all that comes, and its end."""
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _together(*ways: Awaitable[None]) -> None:
    """Both ways to their ends, or to the first failure."""
    tasks = [asyncio.ensure_future(each) for each in ways]
    try:
        await asyncio.gather(*tasks)
    except h11.ProtocolError as exc:
        raise EOFError from exc
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(writer: asyncio.StreamWriter, refusal: _Refusal) -> None:
    body = f"{refusal}\n".encode()
    head = (
        f"HTTP/1.1 {refusal.status.value} {refusal.status.phrase}\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
