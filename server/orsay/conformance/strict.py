"""Strict JSON parser: deviations that Python's parser accepts are failures of the server."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

import httpx

from .failures import Failed

__all__ = ["json_of", "read_json", "utf8"]

_SHOWN = 200


def json_of(answer: httpx.Response) -> Any:
    """The body of a JSON answer. Raises Failed for another content type or invalid JSON."""
    where = f"{answer.request.method} {answer.request.url.path}"
    kind = answer.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise Failed(
            f"{where} answered {answer.status_code} with the content type {kind!r}, not application/json: "
            f"{answer.text[:_SHOWN]!r}"
        )
    return read_json(answer.content, f"the answer of {where}")


def read_json(data: bytes | str, what: str) -> Any:
    """Parse ``data``. Raises Failed with a message that begins with ``what``.

    Refuses NaN and Infinity, numbers beyond a double, duplicate names in an object, lone surrogates, invalid
    UTF-8, and anything after the value.
    """
    text = utf8(data, what) if isinstance(data, bytes) else data
    try:
        value = json.loads(
            text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_without_doubles
        )
    except _NotStrict as exc:
        raise Failed(f"{what} is no strict JSON: it holds {exc}: {text[:_SHOWN]!r}") from None
    except (ValueError, RecursionError) as exc:
        raise Failed(f"{what} is no JSON: {exc}: {text[:_SHOWN]!r}") from exc
    if "\\u" in text:
        _without_halves(value, what)
    return value


def utf8(data: bytes, what: str) -> str:
    """Decode UTF-8. Raises Failed."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        around = data[max(0, exc.start - 20) : exc.end + 20]
        raise Failed(f"{what} is no UTF-8 at byte {exc.start}: {around!r}") from exc


class _NotStrict(ValueError):
    """Invalid JSON; the text names the violation."""


def _no_number(name: str) -> NoReturn:
    raise _NotStrict(f"{name}, which is no JSON and which other readers refuse")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _NotStrict(f"the number {digits[:40]}, which is read as infinite")
    return number


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise _NotStrict(f"the name {double!r} twice in one object")
    return found


def _without_halves(value: Any, what: str) -> None:
    """Raises Failed for a lone surrogate, which UTF-8 cannot encode."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as exc:
        raise Failed(f"{what} contains a lone surrogate, which is no character") from exc
