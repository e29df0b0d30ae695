"""Parser and writer of adapter targets, ``NAME?setting=value&setting=value``.

A value is JSON where it can be read as JSON, and otherwise a string as it stands: ``false``, ``3``,
``[1,2]``, ``left``. A string that looks like JSON goes in quotation marks: ``"3"``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote

from ..errors import LoadError
from ..suggest import did_you_mean

__all__ = ["read", "unknown_setting", "write"]

_PYTHON = {"True": True, "False": False, "None": None}
_SAFE = "/:,[]{}."


def read(text: str) -> tuple[str, dict[str, Any]]:
    """Name and settings. Raises LoadError for a setting without a value, or given twice."""
    name, _, query = text.partition("?")
    settings: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        key = unquote(key)
        if not equals or not key:
            raise LoadError(f"{part!r} in {text!r} is no setting; write setting=value")
        if key in settings:
            raise LoadError(f"{text!r} gives {key!r} twice")
        settings[key] = _value(unquote(value))
    return name, settings


def write(kind: str, name: str, settings: Mapping[str, Any]) -> str:
    """The target for these settings. Raises TypeError for a value without a JSON form."""
    parts = [f"{quote(key, safe='')}={quote(_text(value), safe=_SAFE)}" for key, value in settings.items()]
    return f"{kind}:{name}" + (f"?{'&'.join(parts)}" if parts else "")


def unknown_setting(kind: str, name: str, setting: str, known: Iterable[str]) -> LoadError:
    """The error for a setting that neither the adapter nor the environment has."""
    return LoadError(f"{kind}:{name} has no setting {setting!r}{did_you_mean(setting, known)}")


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return _PYTHON.get(text, text)


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity are not JSON: they stay strings


def _text(value: Any) -> str:
    if isinstance(value, str) and _value(value) == value:
        return value
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    if json.loads(text) != value:
        raise TypeError(f"{value!r} has no JSON form that reads as itself")
    return text
