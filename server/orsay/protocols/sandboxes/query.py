"""Parameters of a request's query."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from ...errors import BadRequest
from ...http.request import Request

__all__ = ["FULL", "number_of", "path_of", "query_of"]

FULL = (1 << 63) - 1
_MOST_DIGITS = len(str(FULL))


def query_of(request: Request) -> dict[str, str]:
    """Parameters by name; the last of several."""
    raw = request.scope["query_string"].decode("latin-1")
    found = parse_qs(raw, keep_blank_values=True, encoding="utf-8", errors="surrogateescape")
    return {name: values[-1] for name, values in found.items()}


def path_of(query: Mapping[str, str]) -> str:
    """The absolute path. Raises BadRequest."""
    path = query.get("path", "")
    if not path.startswith("/") or "\0" in path:
        raise BadRequest("path must be an absolute path")
    return path


def number_of(query: Mapping[str, str], name: str, default: int | None) -> int:
    """A whole number; without a default it must be there. Raises BadRequest."""
    text = query.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise BadRequest(f"{name} must be a whole number of at least 0, and of {_MOST_DIGITS} digits at most")
    number = int(text)
    if number > FULL:
        raise BadRequest(f"{name} must be at most {FULL}")
    return number
