"""The FastAPI part: discovery endpoints, the OpenAPI document, its pages.

Importing FastAPI and building its routes takes longer than everything else that the server needs to answer
its first request, so ``http/app.py`` loads this module while it already listens.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html

from ..errors import Faulted, OrsayError, Refused
from ..faults import FaultLog
from ..runtimes.base import Runtime
from .discovery import VERSION, discovery_router
from .errors import error_answer, problems_answer
from .openapi import describe
from .operations import Operation

__all__ = ["build"]


def build(runtime: Runtime, faults: FaultLog, *, index_only: bool, more: Sequence[Operation] = ()) -> FastAPI:
    """The application for everything that is not an endpoint of a session; ``more`` it only describes."""
    app = FastAPI(
        title="Orsay",
        version=VERSION,
        description="Environments for reinforcement learning, over the Open Reward Standard.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name the scheme and the host that a proxy in front hides
        **_quiet(),
    )
    _add_pages(app)
    app.include_router(discovery_router(runtime, index_only=index_only))

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


def _add_pages(app: FastAPI) -> None:
    """Pages that find the document beside themselves, also where a proxy adds a prefix to all paths."""

    def document(request: Request) -> str:
        return "../openapi.json" if request.scope["raw_path"].endswith(b"/") else "openapi.json"

    async def docs(request: Request) -> Response:
        url = document(request)
        return get_swagger_ui_html(openapi_url=url, title="Orsay", oauth2_redirect_url=None)

    async def redoc(request: Request) -> Response:
        return get_redoc_html(openapi_url=document(request), title="Orsay")

    app.add_route("/docs", docs, include_in_schema=False)
    app.add_route("/redoc", redoc, include_in_schema=False)


def _quiet() -> dict[str, Any]:
    """FastAPI releases with telemetry would export to wherever OTEL_ variables point; not unasked."""
    if "telemetry" in inspect.signature(FastAPI.__init__).parameters:
        return {"telemetry": {"auto_configure": False}}
    return {}
