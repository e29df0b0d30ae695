"""The published description of the endpoints that FastAPI does not route by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

__all__ = ["describe"]


def describe(app: FastAPI, endpoints: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    """The OpenAPI document."""
    if app.openapi_schema is None:
        app.openapi_schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
    return app.openapi_schema
