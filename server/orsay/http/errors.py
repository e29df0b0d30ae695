"""Translation of errors to status codes, headers and bodies, in this module only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from .. import errors
from ..errors import Faulted, Refused
from ..faults import FaultLog

__all__ = ["error_answer", "problems_answer", "validation_answer"]

_STATUS: dict[type[Refused], int] = {
    errors.BadRequest: 400,
    errors.InvalidSplit: 400,
    errors.InvalidIndex: 400,
    errors.ListingUnsupported: 400,
    errors.BadTask: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.UnknownEnvironment: 404,
    errors.UnknownSession: 404,
    errors.Unsupported: 404,
    errors.SessionConflict: 409,
    errors.KeyConflict: 409,
    errors.SessionGone: 410,
    errors.TooLarge: 413,
    errors.Overloaded: 429,
    errors.Starting: 503,
    errors.ShuttingDown: 503,
    errors.OpeningLost: 503,
}

# Released clients retry 429, 502, 503 and 504: only faults that a retry can fix may answer with those.
_FAULT_STATUS = {
    "worker_lost": 410,
    "session_gone": 410,
    "cancelled": 410,
    "overloaded": 429,
    "shutdown": 503,
}

_HIDDEN = "[hidden]"
_LONGEST_INPUT = 500

Headers = tuple[tuple[bytes, bytes], ...]


def error_answer(error: Refused | Faulted, faults: FaultLog) -> tuple[int, bytes, Headers]:
    """Status, JSON body and headers."""
    headers: list[tuple[bytes, bytes]] = []
    if isinstance(error, Faulted):
        status, detail, fault = _FAULT_STATUS.get(error.fault, 500), faults.text(error), error.fault
        retry_after_s = 2.0 if status in (429, 503) else None
        headers.append((b"x-orsay-fault", fault.encode()))
        headers.append((b"x-orsay-fault-id", error.fault_id.encode()))
    else:
        status, detail, retry_after_s = _STATUS[type(error)], error.detail, error.retry_after_s
        headers.append((b"x-orsay-code", error.code.encode()))
        if error.fault is not None:
            headers.append((b"x-orsay-fault", error.fault.encode()))
        if isinstance(error, errors.Starting):
            headers.append((b"x-backend-state", b"starting"))
        if isinstance(error, errors.Unauthorized):
            headers.append((b"www-authenticate", b"Bearer"))
    if retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(retry_after_s)))
    return status, to_json({"detail": detail}), tuple(headers)


def validation_answer(error: ValidationError) -> bytes:
    """Body of a 422, in the form FastAPI gives it."""
    problems: list[dict[str, Any]] = [
        {**problem, "loc": ("body", *problem["loc"])}
        for problem in error.errors(include_url=False, include_context=False)
    ]
    return problems_answer(problems)


def problems_answer(problems: Iterable[Mapping[str, Any]]) -> bytes:
    """Body of a 422 for these problems; repeats neither secrets nor long inputs."""
    detail = [{**problem, "input": _shown(problem)} for problem in problems]
    return to_json({"detail": detail}, serialize_unknown=True, inf_nan_mode="null")


def _shown(problem: Mapping[str, Any]) -> Any:
    value = problem.get("input")
    if problem["type"] == "json_invalid":  # the input is the whole body, and may hold anything
        return {}
    if "secrets" in problem["loc"]:
        return _HIDDEN
    if isinstance(value, Mapping) and "secrets" in value:
        value = {**value, "secrets": _HIDDEN}
    try:
        text = to_json(value, serialize_unknown=True)
    except ValueError:  # a lone surrogate
        return _HIDDEN
    return value if len(text) <= _LONGEST_INPUT else f"{text[:_LONGEST_INPUT].decode(errors='ignore')}…"
