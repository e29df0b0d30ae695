"""Inputs for unknown tools: values that fit a JSON schema, and values that do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["fitting", "only_string_property", "property_named", "unfitting"]

_MAX_DEPTH = 8


def fitting(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """The smallest input that the schema of a tool should accept. Patterns are not supported."""
    if not schema:
        return {}
    value = _value(schema, schema, 0)
    return value if isinstance(value, dict) else {}


def unfitting(schema: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """An input that every validator refuses, or None if the schema accepts anything."""
    properties = (schema or {}).get("properties") or {}
    required = (schema or {}).get("required") or []
    if not required:
        return None
    wrong = fitting(schema)
    name = required[0]
    kind = _resolved(properties.get(name, {}), schema or {}).get("type")
    if kind in ("string", "integer", "number", "boolean"):
        # No lax validator turns an object into a scalar.
        return {**wrong, name: {"not": ["a", kind]}}
    return {key: value for key, value in wrong.items() if key != name}


def only_string_property(schema: Mapping[str, Any] | None) -> str | None:
    """The name of the single required property if that is a free string."""
    required = (schema or {}).get("required") or []
    if len(required) != 1:
        return None
    spec = _resolved(((schema or {}).get("properties") or {}).get(required[0], {}), schema or {})
    free = (
        spec.get("type") == "string" and not {"enum", "const", "pattern", "format", "maxLength"} & spec.keys()
    )
    return str(required[0]) if free else None


def property_named(pattern: re.Pattern[str], schema: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """Name and type of the first numeric property with one of these names."""
    for name, spec in ((schema or {}).get("properties") or {}).items():
        kind = _resolved(spec, schema or {}).get("type")
        if kind in ("integer", "number") and pattern.search(name):
            return str(name), str(kind)
    return None


def _resolved(spec: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    seen = 0
    while "$ref" in spec and seen < _MAX_DEPTH:
        found: Any = root
        for part in str(spec["$ref"]).removeprefix("#/").split("/"):
            found = found.get(part, {}) if isinstance(found, dict) else {}
        spec = found if isinstance(found, dict) else {}
        seen += 1
    return spec


def _value(spec: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    spec = _resolved(spec, root)
    if depth > _MAX_DEPTH:
        return None
    for key in ("const", "default"):
        if spec.get(key) is not None:
            return spec[key]
    if spec.get("enum"):
        return spec["enum"][0]
    if spec.get("examples"):
        return spec["examples"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if spec.get(key):
            return _value(spec[key][0], root, depth + 1)
    kind = spec.get("type", "object" if "properties" in spec else "string")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    return _of_kind(kind, spec, root, depth)


def _of_kind(kind: str, spec: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    if kind == "object":
        properties = spec.get("properties") or {}
        return {
            name: _value(properties.get(name, {}), root, depth + 1) for name in spec.get("required") or []
        }
    if kind == "array":
        count = int(spec.get("minItems", 0))
        return [_value(spec.get("items") or {}, root, depth + 1) for _ in range(count)]
    if kind in ("integer", "number"):
        return _number(spec, whole=kind == "integer")
    if kind == "boolean":
        return False
    if kind == "null":
        return None
    return _string(spec)


def _number(spec: Mapping[str, Any], *, whole: bool) -> int | float:
    step = spec.get("multipleOf") or (1 if whole else 0.5)
    low, high = spec.get("minimum"), spec.get("maximum")
    if low is None and "exclusiveMinimum" in spec:
        low = spec["exclusiveMinimum"] + step
    if high is None and "exclusiveMaximum" in spec:
        high = spec["exclusiveMaximum"] - step
    number: float = 1
    if (low is not None and low > 1) or (high is not None and high < 1) or 1 % step:
        number = -(-low // step) * step if low is not None else (high or 0) // step * step
    return int(number) if whole else number


def _string(spec: Mapping[str, Any]) -> str:
    formats = {
        "date": "2024-01-31",
        "date-time": "2024-01-31T12:00:00Z",
        "uri": "http://localhost/",
        "uuid": "0" * 32,
    }
    text = formats.get(str(spec.get("format")), "1")
    text += "1" * max(0, int(spec.get("minLength", 0)) - len(text))
    return text[: int(spec.get("maxLength", len(text)))]
