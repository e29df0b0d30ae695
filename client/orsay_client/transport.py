"""HTTP transport without retries: one request, one answer.

httpx is the interface and aiohttp the implementation, since httpx searches its pool linearly, which costs
milliseconds per request at a thousand connections. Every failure below HTTP raises ConnectionLost, with a
flag for requests that may have reached the server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ssl import SSLContext
from typing import Any, TypeAlias

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from .errors import BadRequest, ClientClosed, ConnectionLost, ProtocolError, ResultTooLarge

__all__ = ["Answer", "Stream", "Transport", "Verify", "encode_json"]

Verify: TypeAlias = SSLContext | bool

_TIMEOUTS = {"timeout": {"connect": 10.0}}  # answers have their own timeout
_IDLE_CONNECTION_S = 4.0  # below uvicorn's 5 s: a server must not close a connection that is about to be used
_LINGER_S = 1.0
# Explicit, because aiohttp offers encodings that httpx may not be able to decode.
_DEFAULTS = {"Accept": "application/json", "Accept-Encoding": "gzip, deflate", "User-Agent": "orsay-client"}
_MOMENT_S = 0.05  # share of each second
_ERROR_BODY_BYTES = 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_MOVED = frozenset({307, 308})
_MAX_HOPS = 3
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ServerFingerprintMismatch)
_BROKEN = (httpx.TransportError, aiohttp.ClientError, OSError)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer."""

    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ProtocolError for anything else."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            kind = self.headers.get("content-type", "no content type")
            raise ProtocolError(
                f"expected JSON, got {kind} of {len(self.body)} bytes (status {self.status})"
            ) from None


class Stream:
    """An HTTP answer with a body that is still being received; a read timeout breaks it."""

    def __init__(self, response: httpx.Response, watch: asyncio.Timeout, silence_s: float) -> None:
        self._response = response
        self._watch = watch
        self._silence_s = silence_s
        self.status = response.status_code
        self.headers = response.headers

    @property
    def is_event_stream(self) -> bool:
        kind: str = self.headers.get("content-type", "")
        return kind.partition(";")[0].strip().lower() == "text/event-stream"

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; every byte, comments included, resets the read timeout."""
        self._alive_for(self._silence_s)
        async for chunk in self._response.aiter_bytes():
            self._alive_for(self._silence_s)
            yield chunk

    def last_bytes_only(self) -> None:
        """Shorten the read timeout: the result is complete, only reuse of the connection needs the rest."""
        self._silence_s = _LINGER_S
        self._alive_for(_LINGER_S)

    async def answer(self, max_bytes: int = _ERROR_BODY_BYTES) -> Answer:
        """Read the rest. Raises ResultTooLarge past ``max_bytes``."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > max_bytes:
                raise ResultTooLarge(f"the answer is larger than the {max_bytes} bytes this client accepts")
        return Answer(self.status, self.headers, bytes(body))

    def _alive_for(self, seconds: float) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        set_to = self._watch.when()
        # A new timer for each chunk would cost a tenth of a request, so the deadline moves in coarse steps.
        if set_to is None or not deadline - _MOMENT_S * seconds <= set_to <= deadline:
            self._watch.reschedule(deadline)


class Transport:
    """Sends requests to one server over as many connections as there are requests in flight.

    Ignores proxies and credentials of the process environment unless ``trust_env``. Redirects are followed
    within the server only, so that no other host gets a key. Cookies are not kept: sessions of one client
    share only the connection pool.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        max_answer_bytes: int,
        trust_env: bool = False,
        verify: Verify = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        given = httpx.URL(url)
        # aiohttp refuses user and password in a URL beside an Authorization header.
        base = given.copy_with(userinfo=b"")
        login = httpx.BasicAuth(given.username, given.password) if given.userinfo else None
        if base.scheme not in ("http", "https") or not base.host:
            raise ValueError(
                "a server URL looks like http://host:8080; it needs http:// or https:// and a host"
            )
        self.address = f"{base.scheme}://{base.netloc.decode()}{base.path.rstrip('/')}"
        self._timeout_s = timeout_s
        self._max_answer_bytes = max_answer_bytes
        self._base = base
        self._headers = {**_DEFAULTS, **headers}
        self._urls: dict[str, httpx.URL] = {}
        secure = base.scheme == "https"

        def pool() -> aiohttp.ClientSession:
            context = httpx.create_ssl_context(verify=verify, trust_env=trust_env) if secure else True
            return aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, ssl=context, keepalive_timeout=_IDLE_CONNECTION_S, ttl_dns_cache=60
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=trust_env,
            )

        self._http = httpx.AsyncClient(
            # verify=False avoids an unused SSL context of the transport: the pool has its own.
            transport=transport or AiohttpTransport(client=pool, verify=False),
            auth=login,
            trust_env=False,
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        )

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """One request and its whole answer, whatever the status. Raises as ``stream``."""
        wait_s = self._timeout_s if timeout_s is None else timeout_s
        async with self.stream(
            method, path, body=body, headers=headers, answer_s=wait_s, silence_s=wait_s
        ) as stream:
            return await stream.answer(self._max_answer_bytes)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        answer_s: float | None = None,
        silence_s: float,
    ) -> AsyncGenerator[Stream, None]:
        """One request with a streamed answer.

        ``answer_s`` bounds the time to the first byte of the answer, ``silence_s`` each wait for more.
        Raises BadRequest for a body that cannot be sent, and ConnectionLost, also inside the block.
        """
        content = None if body is None else encode_json(body)
        wait_s = self._timeout_s if answer_s is None else answer_s
        watch = asyncio.timeout(wait_s)
        try:
            async with watch:
                response = await self._open(method, path, content, headers)
                try:
                    stream = Stream(response, watch, silence_s)
                    yield stream
                finally:
                    with suppress(*_BROKEN):
                        await response.aclose()
        except _BROKEN as exc:
            if not isinstance(exc, TimeoutError):
                raise self._lost(method, path, exc) from exc
            if not watch.expired():
                raise
            raise ConnectionLost(
                f"{method} {self.address}{path}: no data for too long", may_have_run=True
            ) from exc

    async def _open(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str] | None
    ) -> httpx.Response:
        # Requests are built here: httpx's client would parse and merge the same parts each time.
        sent = {**self._headers, **(headers or {})}
        if content is not None:
            sent["Content-Type"] = "application/json"
        target = self._urls.get(path)
        if target is None:
            target = self._urls[path] = httpx.URL(f"{str(self._base).rstrip('/')}{path}")
        for _ in range(_MAX_HOPS):
            if self._http.is_closed:
                raise ClientClosed("the client is closed")
            body: bytes | AsyncIterator[bytes] | None = content
            if content is not None and len(content) > _PIECE_BYTES:
                body = _pieces(content)
                sent["Content-Length"] = str(len(content))  # else it would be sent in chunks
            request = httpx.Request(method, target, headers=sent, content=body, extensions=_TIMEOUTS)
            response = await self._http.send(request, stream=True, follow_redirects=False)
            if response.status_code == 404:
                self._urls.pop(path, None)
            if response.status_code not in _MOVED or "location" not in response.headers:
                return response
            await response.aread()
            await response.aclose()
            target = request.url.join(response.headers["location"])
            if (target.scheme, target.netloc) != (request.url.scheme, request.url.netloc):
                address = f"{target.scheme}://{target.netloc.decode()}"
                raise ProtocolError(
                    f"{method} {self.address}{path} redirects to {address}; use that URL if you trust it"
                )
            if response.status_code == 308:
                self._urls[path] = target
        raise ProtocolError(f"{method} {self.address}{path}: more than {_MAX_HOPS} redirects")

    def _lost(self, method: str, path: str, exc: BaseException) -> ConnectionLost:
        cause: BaseException = exc
        if isinstance(exc, httpx.TransportError) and exc.__cause__ is not None:
            cause = exc.__cause__
        refused = isinstance(cause, _NOT_SENT) or (cause is exc and isinstance(exc, httpx.ConnectError))
        not_sent = refused or _never_written(cause)
        what = "cannot connect" if not_sent else "the connection broke"
        system = getattr(cause, "os_error", None)
        detail = getattr(system, "strerror", None) or str(cause) or type(cause).__name__
        if refused:
            detail += "; is a server running there?"
        return ConnectionLost(f"{method} {self.address}{path}: {what}: {detail}", may_have_run=not not_sent)

    async def aclose(self) -> None:
        await self._http.aclose()


def _never_written(exc: BaseException | None) -> bool:
    """True if an idle socket was closed: aiohttp reports that before it sends a byte of the request."""
    while exc is not None:
        if isinstance(exc, aiohttp.ClientConnectionResetError) and "closing transport" in str(exc):
            return True
        exc = exc.__cause__
    return False


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    """Pieces of a large body: aiohttp warns that writing it at once could block the event loop."""
    for start in range(0, len(content), _PIECE_BYTES):
        yield content[start : start + _PIECE_BYTES]


def encode_json(body: Any) -> bytes:
    """Compact JSON in UTF-8.

    Raises BadRequest without a status for data without such a form: a number that is not finite or has
    thousands of digits, a lone surrogate, deep nesting, other Python objects.
    """
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        why = "text holds half of a surrogate pair, which is no character"
    except RecursionError:
        why = "it is nested too deep"
    except (ValueError, TypeError) as exc:
        why = str(exc).partition(";")[0]  # the rest refers to a Python setting
    raise BadRequest(f"this cannot be sent as JSON: {why}")
