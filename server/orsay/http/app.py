"""The HTTP face: one ASGI application that sends each request to where it is answered.

Endpoints of a session go straight to ``EpisodeEndpoints``; everything else goes to FastAPI. Authentication
and the translation of errors happen here, for both.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import ValidationError

from ..auth import Keys
from ..errors import Faulted, OrsayError, Refused
from ..faults import FaultLog
from ..logs import get_logger
from ..runtimes.base import Runtime
from .discovery import VERSION, discovery_router
from .episodes import Endpoint, EpisodeEndpoints
from .errors import error_answer, validation_answer
from .messages import Headers, Receive, Scope, Send, send_json
from .openapi import describe

__all__ = ["HttpApp"]

_log = get_logger(__name__)
_OPEN_PATHS = frozenset({"/health", "/ready"})


class HttpApp:
    """Call it as an ASGI application."""

    def __init__(
        self,
        episodes: EpisodeEndpoints,
        runtime: Runtime,
        keys: Keys,
        faults: FaultLog,
        *,
        index_only: bool,
    ) -> None:
        self._keys = keys
        self._faults = faults
        self._endpoints = episodes.table
        self._exact: dict[tuple[str, str], Endpoint] = {
            (method, f"/{action}"): endpoint for (method, action), endpoint in episodes.table.items()
        }
        self._environments: Any = runtime
        self._fastapi = self._cold(runtime, index_only=index_only)

    def know(self, environment: str) -> None:
        """Make the paths of an environment's sessions part of the fast look-up."""
        for (method, action), endpoint in self._endpoints.items():
            self._exact[method, f"/{environment}/{action}"] = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._fastapi(scope, receive, send)
            return
        path = scope["path"]
        headers: Headers = dict(scope["headers"])
        try:
            owner = "" if path in _OPEN_PATHS else self._keys.owner(headers)
            endpoint = self._exact.get((scope["method"], path)) or self._find(scope["method"], path)
            if endpoint is not None:
                await endpoint(scope, headers, owner, receive, send)
            else:
                await self._fastapi(scope, receive, send)
        except ValidationError as exc:
            await send_json(send, validation_answer(exc), status=422)
        except (Refused, Faulted) as exc:
            status, body, extra = error_answer(exc, self._faults)
            await send_json(send, body, status=status, headers=extra)

    def _find(self, method: str, path: str) -> Endpoint | None:
        """For another letter case, a trailing slash, or an environment's name that is not ours."""
        parts = path.strip("/").split("/")
        if len(parts) > 2:
            return None
        return self._endpoints.get((method, parts[-1]))

    def _cold(self, runtime: Runtime, *, index_only: bool) -> FastAPI:
        app = FastAPI(
            title="Orsay",
            version=VERSION,
            description="Environments for reinforcement learning of language models, over the Open Reward Standard.",
        )
        app.include_router(discovery_router(runtime, index_only=index_only))
        app.add_exception_handler(OrsayError, self._on_error)
        app.openapi = lambda: describe(app, self._endpoints)  # type: ignore[method-assign]
        return app

    async def _on_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused | Faulted)
        status, body, extra = error_answer(error, self._faults)
        names = {name.decode(): value.decode() for name, value in extra}
        return Response(body, status, names, media_type="application/json")
