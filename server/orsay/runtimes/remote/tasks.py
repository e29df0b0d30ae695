"""Queries about tasks at an upstream."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_core import from_json, to_json

from ...errors import BadRequest, ListingUnsupported, Starting
from ..base import TaskQuery
from .answers import error_of
from .backoff import Backoff
from .discovery import env_path
from .http import Broken
from .upstream import Upstream

__all__ = ["ask_tasks"]

_PATHS = {"list": "tasks", "count": "num_tasks", "one": "task", "range": "task_range"}
_KEYS = {"list": "tasks", "count": "num_tasks", "one": "task", "range": "tasks"}


async def ask_tasks(upstream: Upstream, query: TaskQuery) -> bytes:
    """Result of ``Runtime.tasks``. Raises Refused or Faulted."""
    body: dict[str, Any] = {"split": query.split}
    if query.ask == "one":
        body["index"] = query.index
    elif query.ask == "range":
        body |= {"start": query.start, "stop": query.stop}
    path = f"{env_path(query.key)}/{_PATHS[query.ask]}"
    backoff = Backoff()
    while True:
        try:
            answer = await upstream.send(
                "POST", path, upstream.json_headers, to_json(body), silence_s=upstream.options.hook_limit_s
            )
            break
        except Broken as broken:  # retries are safe: the request is read-only
            delay = backoff.next_s() if upstream.up else None
            if delay is None:
                raise Starting(f"{upstream.name} cannot be reached: {broken}; it is tried again") from broken
        await asyncio.sleep(delay)
    if answer.status != 200:
        refusal = ListingUnsupported if query.ask == "list" else BadRequest
        raise error_of(answer, upstream.name, upstream.hide(), fault="task_error", refusal=refusal)
    found = _only(answer.body, _KEYS[query.ask], query.key)
    if found is None:
        raise upstream.deviates(f"answered POST {path} without {_KEYS[query.ask]!r}")
    return found


def _only(body: bytes, key: str, env_name: str) -> bytes | None:
    """The JSON value of ``key``, sliced from an answer in the form that ORS servers write."""
    start, end = b'{"%s":' % key.encode(), b',"env_name":' + to_json(env_name) + b"}"
    if body.startswith(start) and body.endswith(end):
        return body[len(start) : -len(end)]
    parsed = _parse(body)
    return to_json(parsed[key]) if isinstance(parsed, dict) and key in parsed else None


def _parse(body: bytes) -> Any:
    try:
        return from_json(body)
    except ValueError:
        return None
