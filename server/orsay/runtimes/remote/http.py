"""HTTP client for one upstream, without retries: a request has one answer or one stream.

Every failure below HTTP raises Broken, with a flag for requests that may have reached the upstream.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from pydantic_core import from_json

from ...errors import ConfigError
from .connections import Connection, Headers, Pool

__all__ = ["Answer", "Broken", "HttpClient", "Misdirected", "Stream", "address_of", "parse_url"]

T = TypeVar("T")

_MOVED = frozenset({307, 308})
_MAX_HOPS = 3
_MAX_ANSWER_BYTES = 512 * 1024 * 1024
_LINE_BREAK = re.compile(r"[\r\n\0]")


class Broken(Exception):
    """The connection broke before the whole answer had arrived.

    ``may_have_run`` unless the request was certainly not sent; ``unreachable``: no connection was made.
    """

    def __init__(self, text: str, *, may_have_run: bool, unreachable: bool = False) -> None:
        super().__init__(text)
        self.may_have_run = may_have_run
        self.unreachable = unreachable


class Misdirected(Exception):
    """The server redirects to another one, which must not get the key."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer."""

    status: int
    headers: Headers
    body: bytes

    def json(self) -> Any:
        """The body as JSON, or None."""
        try:
            return from_json(self.body)
        except ValueError:
            return None


class Stream:
    """An answer with a body that is still being received."""

    __slots__ = ("_closed", "_connection", "_pool", "headers", "status")

    def __init__(self, connection: Connection, pool: Pool) -> None:
        self._connection = connection
        self._pool = pool
        self._closed = False
        self.status = connection.status
        self.headers = connection.headers

    @property
    def is_events(self) -> bool:
        kind = self.headers.get("content-type")
        return kind.partition(";")[0].strip().lower() == "text/event-stream"

    @property
    def at_end(self) -> bool:
        """True once everything was read."""
        return self._closed or self._connection.at_end

    async def read(self) -> bytes:
        """The next bytes; empty at the end. Raises Broken."""
        try:
            return await self._connection.read()
        except OSError as exc:
            raise Broken(_words(exc), may_have_run=True) from exc

    async def whole(self, *, silence_s: float | None = None) -> Answer:
        """The rest of the body. Raises Broken, also after ``silence_s`` without data."""
        parts, size = [], 0
        while data := await _in_time(self.read(), silence_s):
            parts.append(data)
            size += len(data)
            if size > _MAX_ANSWER_BYTES:
                raise Broken(f"an answer of more than {_MAX_ANSWER_BYTES} bytes", may_have_run=True)
        return Answer(self.status, self.headers, parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        """Release the connection, for reuse if the answer was read completely. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        if self._connection.at_end:
            self._pool.release(self._connection)
        else:
            self._pool.drop(self._connection)


class HttpClient:
    """HTTP client for the server at ``url`` only.

    Ignores proxies and credentials of the process environment, and keeps no cookies: sessions share only the
    pool. Redirects are followed within the server only.
    """

    def __init__(self, url: str, *, connect_timeout_s: float) -> None:
        parts = parse_url(url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        self._origin = (parts.scheme, parts.hostname, port)
        self._base = f"{parts.scheme}://{_authority(parts)}"
        self._prefix = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
        # no compression: a compressing proxy would delay pieces of a stream
        fixed = "User-Agent: orsay\r\nAccept-Encoding: identity\r\n"
        self._common = f"Host: {_authority(parts)}\r\n{_login(parts)}{fixed}"
        self._targets: dict[str, str] = {}
        self._pool = Pool(parts.hostname or "", port, secure=secure, connect_timeout_s=connect_timeout_s)

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        body: bytes | None = None,
        silence_s: float,
    ) -> Answer:
        """One request and its whole answer, whatever the status. Raises Broken, Misdirected."""
        stream = await _in_time(self.open(method, path, headers, body=body), silence_s)
        try:
            return await stream.whole(silence_s=silence_s)
        finally:
            stream.close()

    async def open(
        self, method: str, path: str, headers: Mapping[str, str], *, body: bytes | None = None
    ) -> Stream:
        """Send a request; the caller reads and closes the stream. Raises Broken, Misdirected.

        The caller is responsible for read timeouts.
        """
        target = self._targets.get(path) or f"{self._prefix}{path}"
        for _ in range(_MAX_HOPS):
            stream = await self._once(self._request(method, target, headers, body))
            location = stream.headers.get("location")
            if stream.status not in _MOVED or not location:
                return stream
            try:
                await stream.whole()
            finally:
                stream.close()
            target = self._moved(target, location)
            if stream.status == 308:
                self._targets[path] = target
        raise Misdirected(f"more than {_MAX_HOPS} redirects")

    async def _once(self, request: bytes) -> Stream:
        try:
            connection = await self._pool.acquire()
        except OSError as exc:  # TimeoutError is one
            raise Broken(_words(exc), may_have_run=False, unreachable=True) from exc
        try:
            connection.send(request)
            await connection.head()
        except OSError as exc:
            self._pool.drop(connection)
            raise Broken(_words(exc), may_have_run=True) from exc
        except BaseException:
            self._pool.drop(connection)
            raise
        return Stream(connection, self._pool)

    def _request(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        lines = "".join([f"{name}: {_safe(value)}\r\n" for name, value in headers.items()])
        length = "" if body is None and method == "GET" else f"Content-Length: {len(body or b'')}\r\n"
        return f"{method} {target} HTTP/1.1\r\n{self._common}{lines}{length}\r\n".encode() + (body or b"")

    def _moved(self, target: str, location: str) -> str:
        parts = urlsplit(urljoin(f"{self._base}{target}", _safe(location)))
        port = parts.port or (443 if parts.scheme == "https" else 80)
        if (parts.scheme, parts.hostname, port) != self._origin:
            target = f"{parts.scheme}://{_authority(parts)}"
            raise Misdirected(f"redirects to {target}; use that URL if you trust it")
        return f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()


async def _in_time(work: Coroutine[Any, Any, T], limit_s: float | None) -> T:
    """Await with a timeout, which raises Broken."""
    if limit_s is None:
        return await work
    watch = asyncio.timeout(limit_s)
    try:
        async with watch:
            return await work
    except TimeoutError as exc:
        if not watch.expired():
            raise
        raise Broken("no data for too long", may_have_run=True) from exc


def _safe(value: str) -> str:
    """Header value without line breaks, which would allow header injection."""
    return _LINE_BREAK.sub("", value)


def parse_url(text: str) -> SplitResult:
    """The parts of a server's URL. Raises ConfigError."""
    try:
        parts = urlsplit(text.strip())
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass  # an invalid port, or unbalanced brackets
    shown = re.sub(r"//[^/]*@", "//", text)  # remove a password
    raise ConfigError(
        f"{shown!r} is no URL of a server: it needs http:// or https:// and a host, as http://host:8080"
    )


def address_of(text: str) -> str:
    """Host, port and path of a URL, for display."""
    parts = parse_url(text)
    return f"{_authority(parts)}{parts.path.rstrip('/')}"


def _authority(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _login(parts: SplitResult) -> str:
    if parts.username is None:
        return ""
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return f"Authorization: Basic {base64.b64encode(login).decode()}\r\n"


def _words(exc: BaseException) -> str:
    words = getattr(exc, "strerror", None) or str(exc)
    return words or ("no connection in time" if isinstance(exc, TimeoutError) else type(exc).__name__)
