"""One ASGI application: dispatches each request to its endpoint.

Endpoints of a session go straight to ``EpisodeEndpoints``; everything else goes to FastAPI, which is loaded
in the background. Authentication and the translation of errors happen here, for both.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

from pydantic import ValidationError
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from ..auth import Keys
from ..errors import (
    BadRequest,
    Faulted,
    Forbidden,
    Refused,
    ShuttingDown,
    Starting,
    Unauthorized,
    exception_text,
)
from ..faults import FaultLog
from ..logs import get_logger
from ..runtimes.base import Runtime
from ..runtimes.router import hosts_nothing
from ..sandboxes.service import SANDBOX_PREFIX
from .asgi import Application, Headers, Receive, Scope, Send, break_off, has_left, replay
from .cycle import Cycle
from .episodes import AtOnce, EpisodeEndpoints
from .errors import error_answer, validation_answer
from .guard import Guard
from .loading import Loading
from .mounts import Mount, Mounts, Pairs
from .request import Endpoint, Request

__all__ = ["HttpApp"]

_log = get_logger(__name__)
_OPEN_PATHS = frozenset({"/health", "/ready"})
_OTHER_IDS = SANDBOX_PREFIX.encode()  # a sandbox and a session are pinged and ended on the same paths
_FORWARDED = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})  # headers of a proxy


class HttpApp:
    """The ASGI application of a server. ``load_rest`` loads the FastAPI part ahead of its first request."""

    def __init__(
        self,
        episodes: EpisodeEndpoints,
        runtime: Runtime,
        keys: Keys,
        guard: Guard,
        faults: FaultLog,
        *,
        stopping: Callable[[], bool],
        max_body_bytes: int,
        index_only: bool,
        loading: Loading,
        trusted_proxies: str = "",
        mounts: Sequence[Mount] = (),
    ) -> None:
        self.mounts = Mounts(mounts, keys, guard, faults)
        self._max_body = max_body_bytes
        self._keys = keys
        self._guard = guard
        self._faults = faults
        self._runtime = runtime
        self._stopping = stopping
        self._loading = loading
        self._index_only = index_only
        self._behind_proxy = (
            ProxyHeadersMiddleware(cast("Any", self._answer), trusted_proxies) if trusted_proxies else None
        )
        self._episodes = episodes
        self._at_once: dict[tuple[str, str], AtOnce] = {}
        self._endpoints = episodes.table
        self._methods = {action: method for method, action in episodes.table}
        self._exact: dict[tuple[str, str], Endpoint] = {
            ("GET", "/health"): self._health,
            ("GET", "/ready"): self._ready,
        }
        self.know("")
        self._rest: asyncio.Task[Application] | None = None

    def know(self, environment: str) -> None:
        """Add the paths of an environment's sessions to the table of exact paths."""
        prefix = f"/{environment}" if environment else ""
        for (method, action), endpoint in self._endpoints.items():
            self._exact[method, f"{prefix}/{action}"] = endpoint
        for (method, action), begin in self._episodes.at_once.items():
            self._at_once[method, f"{prefix}/{action}"] = begin

    async def load_rest(self) -> None:
        """Load the FastAPI part on a thread, once."""
        if self._rest is None:
            self._rest = asyncio.create_task(asyncio.to_thread(self._build_rest))
        await asyncio.shield(self._rest)

    def _build_rest(self) -> Application:
        cold = importlib.import_module(".fastapi_app", __package__)
        app: Application = cold.build(
            self._runtime, self._faults, index_only=self._index_only, more=self.mounts.operations
        )
        return app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        request = Request(scope, dict(scope["headers"]), receive, send)
        if self._behind_proxy is not None and not _FORWARDED.isdisjoint(request.headers):
            return self._behind_proxy(cast("Any", scope), cast("Any", receive), cast("Any", send))
        return self._serve(request)

    def _answer(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self._serve(Request(scope, dict(scope["headers"]), receive, send))

    def _serve(self, request: Request) -> Awaitable[None]:
        if self._loading.over and request.scope["type"] == "http":
            return self._run(request)
        return self._serve_later(request)

    async def _serve_later(self, request: Request) -> None:
        """Serve a WebSocket, or a request that arrived before the environments were loaded."""
        if not self._loading.over:
            await self._loading.wait(request.path, partial(has_left, request.receive))
            if has_left(request.receive):
                return
        if request.scope["type"] == "http":
            await self._run(request)
        else:
            await self.mounts.answer_socket(request.scope, request.receive, request.send)

    def at_once(self, cycle: Cycle) -> bool:
        """Begin to answer a completely received request without a task; False if it needs one.

        Calls and the other requests of each episode are answered by callbacks of the session: a task for each
        would be a tenth of its cost.
        """
        scope: Any = cycle.scope
        begin = self._at_once.get((scope["method"], scope["path"]))
        if begin is None or not self._loading.over:
            return False
        headers: Headers = dict(scope["headers"])
        if not _FORWARDED.isdisjoint(headers):  # the middleware decides if the proxy is trusted
            return False
        request = Request(scope, headers, cycle.receive, cycle.send)  # type: ignore[arg-type]  # uvicorn's types
        try:
            if self._keys.required:
                request.owner = self._keys.owner(headers)
            else:
                self._guard.check(request)
            return begin(request, cycle, self._defer)
        except Exception as exc:
            self._defer(cycle, request, partial(_fail, exc))
            return True

    def _defer(self, cycle: Cycle, request: Request, endpoint: Endpoint) -> None:
        """Start a task in which the endpoint answers the rest of the request."""
        cycle.start(lambda scope, receive, send: self._run(request, endpoint))

    async def _run(self, request: Request, endpoint: Endpoint | None = None) -> None:
        """Await ``endpoint``, by default the request's own; an exception of it becomes the answer."""
        if request.scope["path"].endswith("/"):  # answered as without it: a redirect would cost a round trip
            request.scope = {**request.scope, "path": request.scope["path"].rstrip("/") or "/"}
        try:
            await (endpoint or self._endpoint(request))(request)
        except ValidationError as exc:
            await self._send_error(request, 422, validation_answer(exc))
        except (Refused, Faulted) as exc:
            if isinstance(exc, (Forbidden, Unauthorized)):
                self._guard.note(request, exc)
            try:
                await self._send_error(request, *error_answer(exc, self._faults))
            except RuntimeError:  # an answer had begun
                await break_off(request.receive, request.send)
        except Exception as exc:
            _log.exception("request_failed", method=request.method, path=request.path)
            fault = Faulted("internal", exception_text(exc))
            with contextlib.suppress(RuntimeError):  # an answer had begun, and breaks off
                await self._send_error(request, *error_answer(fault, self._faults))

    def _endpoint(self, request: Request) -> Endpoint:
        """Authenticate the request, set its owner, and return its endpoint.

        Raises Unauthorized, Forbidden, BadRequest and Starting, except for paths that need no key.
        """
        path, method = request.scope["path"], request.scope["method"]
        if path not in _OPEN_PATHS:
            try:
                if self._keys.required:
                    request.owner = self._keys.owner(request.headers)
                else:
                    self._guard.check(request)
            except (Unauthorized, Forbidden, BadRequest):
                endpoint = self.mounts.find_open(method, path)
                if endpoint is None:
                    raise
                return endpoint
        if request.headers.get(b"x-session-id", b"").startswith(_OTHER_IDS):
            other = self.mounts.find(method, path)
            if other is not None:
                return other
        found = self._exact.get((method, path)) or self._find(method, path)
        return found or self.mounts.find(method, path) or self._answer_rest

    async def _send_error(self, request: Request, status: int, body: bytes, extra: Pairs = ()) -> None:
        headers = (*extra, *self.mounts.headers(request.path))
        await request.send_json(body, status=status, headers=headers)

    def lets_in(self, scope: Scope) -> bool:
        """True if a pending request needs no key, or its key is still accepted."""
        path: str = scope["path"].rstrip("/")
        try:
            self._keys.owner(dict(scope["headers"]))
        except Starting:  # accepted, but without a name so far
            return True
        except Unauthorized:
            return path in _OPEN_PATHS or self.mounts.find_open(scope["method"], path) is not None
        return True

    async def _answer_rest(self, request: Request) -> None:
        parts = request.path.strip("/").split("/")
        allowed = self._methods.get(parts[-1]) if len(parts) <= 2 else None
        if request.path in _OPEN_PATHS:
            allowed = "GET"
        if allowed is not None:
            text = b'{"detail":"Method Not Allowed"}'
            await request.send_json(text, status=405, headers=((b"allow", allowed.encode()),))
            return
        await self.load_rest()
        assert self._rest is not None
        body = await request.body(self._max_body)
        await self._rest.result()(request.scope, replay(body, request.receive), request.send)

    def _find(self, method: str, path: str) -> Endpoint | None:
        """Endpoint by the last part of the path: the name may be unknown, or in another letter case."""
        parts = path.strip("/").split("/")
        if len(parts) > 2:
            return None
        return self._endpoints.get((method, parts[-1]))

    async def _health(self, request: Request) -> None:
        await request.send_json(b'{"status":"ok"}')

    async def _ready(self, request: Request) -> None:
        if not self._runtime.environments and not hosts_nothing(self._runtime):
            raise Starting("the environments are still being loaded")
        if not self._keys.are_named:
            raise Starting("the journal is still being read")
        if self._stopping():
            raise ShuttingDown("the server is shutting down")
        await request.send_json(b'{"status":"ready"}')


async def _fail(exc: Exception, _request: Request) -> None:
    raise exc
