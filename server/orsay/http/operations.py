"""Descriptions of endpoints for the OpenAPI document; importable without FastAPI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

__all__ = ["OPENING_ERRORS", "Operation"]

OPENING_ERRORS = (400, 401, 404, 409, 410, 413, 422, 429, 500, 503)
"""Error statuses of an endpoint that opens a session or runs code in one."""


@dataclass(frozen=True)
class Operation:
    """One method of one path.

    ``stream``: the answer is, or may become, a stream of events. ``session``: X-Session-ID must be sent.
    ``query`` has a field for each parameter of the query. ``name`` is the operationId, the path's last part
    unless given. ``media`` is the content type of an answer that is neither JSON nor a stream.
    """

    method: str
    path: str
    summary: str
    answer: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    stream: bool = False
    session: bool = True
    headers: Sequence[str] = ()
    errors: Sequence[int] = field(default=(400, 401, 404, 410))
    tag: str = "sessions"
    name: str | None = None
    query: type[BaseModel] | None = None
    media: str | None = None
