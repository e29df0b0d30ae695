"""The FastAPI part: discovery endpoints and the OpenAPI document.

Importing FastAPI and building its routes takes longer than everything else that the server needs to answer
its first request, so ``http/app.py`` loads this module while it already listens.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from json import JSONDecodeError
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json

from ..errors import Faulted, OrsayError, Refused
from ..faults import FaultLog
from ..runtimes.base import Runtime
from .discovery import VERSION, discovery_router
from .errors import error_answer, problems_answer
from .openapi import describe
from .operations import Operation

__all__ = ["build"]


class _Request(Request):
    """Parses JSON as all other endpoints do: Python's own parser accepts lone surrogates."""

    async def json(self) -> Any:
        body = await self.body()
        try:
            return from_json(body)
        except ValueError as exc:
            raise JSONDecodeError(str(exc), "", 0) from None


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            return await handle(_Request(request.scope, request.receive))

        return answer


def build(runtime: Runtime, faults: FaultLog, *, index_only: bool, more: Sequence[Operation] = ()) -> FastAPI:
    """The application for all endpoints without a session; ``more`` are operations that it only documents."""
    app = FastAPI(
        title="Orsay",
        version=VERSION,
        description="Environments for reinforcement learning, over the Open Reward Standard.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name our scheme and host, not a proxy's
        **_quiet(),
    )
    app.include_router(discovery_router(runtime, index_only=index_only, route=_Route))

    async def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused | Faulted)
        status, body, extra = error_answer(error, faults)
        headers = {name.decode(): value.decode() for name, value in extra}
        return Response(body, status, headers, media_type="application/json")

    async def on_bad_body(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return Response(problems_answer(error.errors()), 422, media_type="application/json")

    app.add_exception_handler(OrsayError, on_error)
    app.add_exception_handler(RequestValidationError, on_bad_body)
    app.openapi = lambda: describe(app, more)  # type: ignore[method-assign]  # the way FastAPI documents
    return app


def _quiet() -> dict[str, Any]:
    """Option against the telemetry of newer FastAPI releases, which exports if OTEL_ variables are set."""
    if "telemetry" in inspect.signature(FastAPI.__init__).parameters:
        return {"telemetry": {"auto_configure": False}}
    return {}
