"""The border to HTTP: one request to an upstream, one answer or one stream, no retries.

aiohttp is imported here only. Every failure below HTTP leaves as Broken, which says whether the request may
have reached the upstream.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import aiohttp
from pydantic_core import from_json
from yarl import URL

from ...errors import ConfigError

__all__ = ["Answer", "Border", "Broken", "Misdirected", "Stream"]

_IDLE_CONNECTION_S = 4.0  # below the 5 s of uvicorn: a server must not close a connection we are about to use
_LARGE_BODY_BYTES = 512 * 1024  # is written in parts
_MOVED = frozenset({307, 308})
_MAX_HOPS = 3
_MAX_ANSWER_BYTES = 512 * 1024 * 1024
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ServerFingerprintMismatch)
_BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


class Broken(Exception):
    """No whole answer came.

    ``may_have_run`` unless the request was certainly not sent; ``unreachable``: there was no connection.
    """

    def __init__(self, text: str, *, may_have_run: bool, unreachable: bool = False) -> None:
        super().__init__(text)
        self.may_have_run = may_have_run
        self.unreachable = unreachable


class Misdirected(Exception):
    """The server sends us to another one, where the key must not go."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer; ``headers`` are found in any letter case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return from_json(self.body)
        except ValueError:
            return None


class Stream:
    """An answer whose body is still to come."""

    __slots__ = ("_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    @property
    def is_events(self) -> bool:
        kind = self.headers.get("content-type", "")
        return kind.partition(";")[0].strip().lower() == "text/event-stream"

    @property
    def at_end(self) -> bool:
        return self._response.content.at_eof()

    async def read(self) -> bytes:
        """What has arrived; empty at the end. Raises Broken."""
        try:
            return await self._response.content.readany()
        except _BROKEN as exc:
            raise _broken(exc) from exc

    async def whole(self) -> Answer:
        """The rest of it. Raises Broken."""
        parts, size = [], 0
        while data := await self.read():
            parts.append(data)
            size += len(data)
            if size > _MAX_ANSWER_BYTES:
                raise Broken(f"an answer of more than {_MAX_ANSWER_BYTES} bytes", may_have_run=True)
        return Answer(self.status, self.headers, parts[0] if len(parts) == 1 else b"".join(parts))

    def close(self) -> None:
        """Let go; the connection serves again if the answer was read to its end."""
        self._response.close()


class Border:
    """Connections to one server, as many as there are requests in flight.

    Uses neither proxies nor credentials of the process environment, and keeps no cookies: sessions have
    nothing in common but the pool. Redirects are followed within the server only.
    """

    def __init__(self, url: str, *, connect_timeout_s: float) -> None:
        self._base = parse_url(url)
        self._connect_timeout_s = connect_timeout_s
        self._urls: dict[str, URL] = {}
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_CONNECTION_S, ttl_dns_cache=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_login(url),
            skip_auto_headers=("User-Agent", "Content-Type"),
            requote_redirect_url=False,
        )

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
        stream = await self.open(method, path, headers, body=body, silence_s=silence_s)
        try:
            return await stream.whole()
        finally:
            stream.close()

    async def open(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        body: bytes | None = None,
        silence_s: float | None = None,
    ) -> Stream:
        """One request; the answer is to be read, and closed. Raises Broken, Misdirected.

        Without ``silence_s`` it is the caller's to notice that nothing comes.
        """
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = self._url(path)
        timeout = _timeout(self._connect_timeout_s, silence_s)
        try:
            for _ in range(_MAX_HOPS):
                response = await self._http.request(
                    method,
                    url,
                    headers=headers,
                    data=_content(body),
                    timeout=timeout,
                    allow_redirects=False,
                )
                if response.status not in _MOVED or "location" not in response.headers:
                    return Stream(response)
                await response.read()
                url = self._moved(path, url, response)
        except _BROKEN as exc:
            raise _broken(exc) from exc
        raise Misdirected(f"more than {_MAX_HOPS} redirects")

    def _url(self, path: str) -> URL:
        return URL(f"{str(self._base).rstrip('/')}{path}", encoded=True)

    def _moved(self, path: str, url: URL, response: aiohttp.ClientResponse) -> URL:
        target = url.join(URL(response.headers["location"], encoded=True))
        if target.origin() != url.origin():
            raise Misdirected(f"redirects to {target.origin()}; use that URL if you trust it")
        if response.status == 308:
            self._urls[path] = target
        return target

    async def close(self) -> None:
        await self._http.close()


def parse_url(text: str) -> URL:
    """The URL without user and password. Raises ConfigError."""
    try:
        url = URL(text.strip())
        good = url.scheme in ("http", "https") and bool(url.host) and url.explicit_port != 0
    except ValueError:
        good = False
    if not good:
        shown = re.sub(r"//[^/]*@", "//", text)  # a password stays out of what is printed
        raise ConfigError(
            f"{shown!r} is no URL of a server: it needs http:// or https:// and a host, as http://host:8080"
        )
    return url.with_user(None).with_query(None).with_fragment(None)


def place_of(text: str) -> str:
    """Host, port and path of a URL, for people."""
    url = parse_url(text)
    return f"{url.authority}{url.path.rstrip('/')}"


def _login(text: str) -> dict[str, str]:
    url = URL(text.strip())
    if url.user is None:
        return {}
    login = f"{url.user}:{url.password or ''}".encode()
    return {"Authorization": f"Basic {base64.b64encode(login).decode()}"}


def _content(body: bytes | None) -> bytes | io.BytesIO | None:
    return io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY_BYTES else body


@cache
def _timeout(connect_s: float, silence_s: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=silence_s)


def _broken(exc: BaseException) -> Broken:
    unreachable = isinstance(exc, _NOT_SENT)
    not_sent = unreachable or _never_written(exc)
    system = getattr(exc, "os_error", None)
    if isinstance(exc, aiohttp.ServerTimeoutError) and not not_sent:
        text = "no sign of life for too long"
    else:
        text = getattr(system, "strerror", None) or str(exc) or type(exc).__name__
    return Broken(text, may_have_run=not not_sent, unreachable=unreachable)


def _never_written(exc: BaseException | None) -> bool:
    """The socket died while it was idle: aiohttp says so before it gives it the first byte of a request."""
    while exc is not None:
        if isinstance(exc, aiohttp.ClientConnectionResetError) and "closing transport" in str(exc):
            return True
        exc = exc.__cause__
    return False
