"""Conversion of other packages' values, such as numpy numbers and arrays, to JSON data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["plain", "short_float"]


def plain(value: Any) -> Any:
    """JSON data for ``value``; values without a JSON form and non-finite numbers become text."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
        case _ if hasattr(value, "dtype"):
            return _array(value)
        case _:
            return str(value)


def short_float(value: Any) -> float:
    """The shortest number at the precision of ``value``: 0.7 for a float32 of 0.7, not 0.699999988079071."""
    return float(str(value))


def _array(value: Any) -> Any:
    if getattr(value, "ndim", 0):
        return [plain(item) for item in value]
    value = value[()]
    match value.dtype.kind:
        case "b":
            return bool(value)
        case "i" | "u":
            return int(value)
        case "f":
            return short_float(value) if math.isfinite(value) else str(float(value))
        case _:
            return str(value)
