"""Other protocols that the server speaks beside ORS: where their requests go.

A face answers some paths of its own, over HTTP and WebSocket. Keys are checked and errors become status codes
here and in ``http/app.py``, for every face alike. ``orsay.also`` holds the faces.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable
from urllib.parse import urlsplit

from ..auth import Keys
from ..errors import Faulted, Refused, Unauthorized, UnknownEnvironment, exception_text
from ..faults import FaultLog
from ..logs import get_logger
from .errors import error_answer
from .messages import Headers, Receive, Scope, Send, send_json, text_header
from .operations import Operation

__all__ = ["Endpoint", "Face", "Faces", "Page", "Pairs", "is_loopback"]

_log = get_logger(__name__)
Endpoint: TypeAlias = Callable[[Scope, Headers, str, Receive, Send], Awaitable[None]]
"""``(scope, headers, owner, receive, send)``; instead of answering it may raise Refused, Faulted or a
ValidationError."""
Pairs: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Names and values of headers."""


class Face(Protocol):
    """One protocol."""

    @property
    def operations(self) -> Sequence[Operation]:
        """How its endpoints are described."""

    def find(self, path: str) -> Mapping[str, Endpoint]:
        """Endpoints of that path by method; empty when the path is not of this protocol."""

    def find_socket(self, path: str) -> Endpoint | None:
        """What answers a WebSocket on that path. It may raise until it accepts the connection."""

    async def close(self) -> None:
        """Sessions are closed: answer what still waits, and release everything."""


@runtime_checkable
class Page(Protocol):
    """What a face tells beside, when browsers load pages from it."""

    def is_open(self, path: str) -> bool:
        """Whether that path is answered without a key, since nothing secret is there."""

    def headers(self, path: str) -> Pairs:
        """What each answer at that path carries, errors included; its endpoints add them by themselves."""


class Faces:
    """The faces of one server."""

    def __init__(self, faces: Sequence[Face], keys: Keys, faults: FaultLog) -> None:
        self._faces = faces
        self._pages = [face for face in faces if isinstance(face, Page)]
        self._keys = keys
        self._faults = faults

    @property
    def operations(self) -> list[Operation]:
        return [operation for face in self._faces for operation in face.operations]

    def find(self, method: str, path: str, headers: Headers) -> Endpoint | None:
        """The endpoint, or one that says which methods there are; Unauthorized for a foreign web page."""
        for face in self._faces:
            if methods := face.find(path):
                if not self._is_open(path):  # a page's own files come with Origin too
                    self._refuse_foreign_pages(headers)
                return methods.get(method) or partial(_not_allowed, ", ".join(methods), self.headers(path))
        return None

    def find_open(self, method: str, path: str, headers: Headers) -> Endpoint | None:
        """The same for a request without a key, where that path needs none."""
        return self.find(method, path, headers) if self._is_open(path) else None

    def _is_open(self, path: str) -> bool:
        return any(page.is_open(path) for page in self._pages)

    def headers(self, path: str) -> Pairs:
        """What an error at that path carries beside its own headers."""
        return tuple(pair for page in self._pages for pair in page.headers(path))

    async def answer_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket, from its handshake to its end."""
        path: str = scope["path"]
        headers: Headers = dict(scope["headers"])
        await receive()  # the request for the connection
        try:
            owner = self._keys.owner(headers)
            self._refuse_foreign_pages(headers)
            found = (face.find_socket(path) for face in self._faces)
            endpoint = next((each for each in found if each is not None), None)
            if endpoint is None:
                raise UnknownEnvironment(f"no WebSocket is answered at {path}")
            await endpoint(scope, headers, owner, receive, send)
        except (Refused, Faulted) as exc:
            await self._refuse_socket(exc, send)
        except OSError:
            _log.debug("socket_broken", path=path)
        except Exception as exc:
            _log.exception("socket_failed", path=path)
            await self._refuse_socket(Faulted("internal", exception_text(exc)), send)

    async def close(self) -> None:
        for face in self._faces:
            await face.close()

    async def _refuse_socket(self, error: Refused | Faulted, send: Send) -> None:
        status, body, extra = error_answer(error, self._faults)
        headers = [(b"content-type", b"application/json"), *extra]
        with contextlib.suppress(RuntimeError, OSError):  # it was accepted before, or is gone
            await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": body})

    def _refuse_foreign_pages(self, headers: Headers) -> None:
        """A web page may not reach a server without keys from the browser of somebody who can.

        A browser sends no key that the page does not know; without keys, only pages of this machine pass.
        """
        origin = text_header(headers, b"origin")
        if origin is None or self._keys:
            return
        if not is_loopback(urlsplit(origin).hostname or ""):
            raise Unauthorized(
                "this server has no API keys, so web pages of other machines may not use it;"
                f" this one is of {origin}"
            )


def is_loopback(host: str) -> bool:
    """Whether that name or address is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def _not_allowed(
    methods: str, more: Pairs, scope: Scope, headers: Headers, owner: str, receive: Receive, send: Send
) -> None:
    text = b'{"detail":"Method Not Allowed"}'
    await send_json(send, text, status=405, headers=((b"allow", methods.encode()), *more))
