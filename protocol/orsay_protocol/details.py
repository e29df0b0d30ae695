"""Error text from the JSON body of an HTTP error."""

from __future__ import annotations

from typing import Any

__all__ = ["detail_text"]


def detail_text(body: Any) -> str:
    """``detail`` of a parsed body, or of each problem of a 422.

    Without the input, which may be a secret. Empty for a body of another kind.
    """
    detail = body.get("detail", "") if isinstance(body, dict) else ""
    return "; ".join(map(_complaint, detail)) if isinstance(detail, list) else str(detail)


def _complaint(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    place = ".".join(str(part) for part in entry.get("loc", ()) if part != "body")
    return f"{place}: {entry.get('msg', '')}" if place else str(entry.get("msg", ""))
