"""Mounts: sub-applications with paths of their own, over HTTP and WebSocket.

The console, the metrics, the pages of the OpenAPI document and the protocols beside ORS are mounts. Keys and
origins are checked, and errors become status codes, here and in ``http/app.py``, for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

from ..auth import Keys
from ..errors import Faulted, Forbidden, Refused, Unauthorized, UnknownEnvironment, exception_text
from ..faults import FaultLog
from ..logs import get_logger
from .admitted import Admitted
from .asgi import Receive, Scope, Send
from .errors import error_answer
from .guard import Guard
from .operations import Operation
from .request import Endpoint, Request

__all__ = ["Mount", "Mounts", "Page", "Pairs"]

_log = get_logger(__name__)
_REVOKED = "the API key was taken back"
_POLICY = 1008
_CLOSE_TIMEOUT_S = 5.0
Pairs: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Names and values of headers."""


class Mount(Protocol):
    """A sub-application of the server."""

    @property
    def operations(self) -> Sequence[Operation]:
        """Entries of its endpoints in the OpenAPI document."""

    def find(self, path: str) -> Mapping[str, Endpoint]:
        """Endpoints of that path by method; empty for a path that is not of this mount."""

    def find_socket(self, path: str) -> Endpoint | None:
        """Endpoint of WebSockets on that path. It may raise before it accepts the connection."""

    async def close(self) -> None:
        """Answer pending requests and release all resources; called after the sessions are closed."""


@runtime_checkable
class Page(Protocol):
    """A mount from which browsers load pages."""

    def is_open(self, path: str) -> bool:
        """True for a path without secrets, answered without a key and under any host name."""

    def headers(self, path: str) -> Pairs:
        """Headers of each answer at that path. Endpoints add them themselves; the app adds them to errors."""


class Mounts:
    """The mounts of one server."""

    def __init__(self, mounts: Sequence[Mount], keys: Keys, guard: Guard, faults: FaultLog) -> None:
        self._mounts = mounts
        self._pages = [mount for mount in mounts if isinstance(mount, Page)]
        self._keys = keys
        self._guard = guard
        self._admitted = Admitted(keys)
        self._faults = faults

    @property
    def operations(self) -> list[Operation]:
        return [operation for mount in self._mounts for operation in mount.operations]

    def find(self, method: str, path: str) -> Endpoint | None:
        """The endpoint, or one that answers 405 with the methods of the path."""
        for mount in self._mounts:
            if methods := mount.find(path):
                return methods.get(method) or partial(_not_allowed, ", ".join(methods), self.headers(path))
        return None

    def find_open(self, method: str, path: str) -> Endpoint | None:
        """The same for a request without a valid key; None unless the path is open."""
        if any(page.is_open(path) for page in self._pages):
            return self.find(method, path)
        return None

    def headers(self, path: str) -> Pairs:
        """Additional headers of an error at that path."""
        return tuple(pair for page in self._pages for pair in page.headers(path))

    async def answer_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket, from its handshake to its end."""
        request = Request(scope, dict(scope["headers"]), receive, send)
        await receive()  # websocket.connect
        try:
            request.owner = self._keys.owner(request.headers)
            if not request.owner:
                self._guard.check(request)
            found = (mount.find_socket(request.path) for mount in self._mounts)
            endpoint = next((each for each in found if each is not None), None)
            if endpoint is None:
                raise UnknownEnvironment(f"no WebSocket is answered at {request.path}")
            await self._serve_socket(endpoint, request)
        except (Refused, Faulted) as exc:
            if isinstance(exc, (Forbidden, Unauthorized)):
                self._guard.note(request, exc)
            await self._refuse_socket(exc, send)
        except OSError:
            _log.debug("socket_broken", path=request.path)
        except Exception as exc:
            _log.exception("socket_failed", path=request.path)
            await self._refuse_socket(Faulted("internal", exception_text(exc)), send)

    async def _serve_socket(self, endpoint: Endpoint, request: Request) -> None:
        """Serve one WebSocket until either side ends it; a revoked key closes it at once."""
        task = self._admitted.enter(request)
        work = asyncio.ensure_future(endpoint(request))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if not self._admitted.revoked(task):
                raise
            work.cancel()
            with contextlib.suppress(RuntimeError, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):  # the client may not be reading
                    await self._refuse_socket(Unauthorized(_REVOKED), request.send)  # unless it was accepted
                    close = {"type": "websocket.close", "code": _POLICY, "reason": _REVOKED}
                    await request.send(close)
        finally:
            self._admitted.leave(task)
            work.cancel()
            await asyncio.wait([work])

    async def close(self) -> None:
        for mount in self._mounts:
            await mount.close()

    async def _refuse_socket(self, error: Refused | Faulted, send: Send) -> None:
        status, body, extra = error_answer(error, self._faults)
        headers = [(b"content-type", b"application/json"), *extra]
        with contextlib.suppress(RuntimeError, OSError):  # it was accepted before, or is gone
            await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": body})


async def _not_allowed(methods: str, more: Pairs, request: Request) -> None:
    text = b'{"detail":"Method Not Allowed"}'
    await request.send_json(text, status=405, headers=((b"allow", methods.encode()), *more))
