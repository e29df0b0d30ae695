"""Random values for JSON schemas: tool inputs that the environment is likely to accept."""

from __future__ import annotations

import math
import random
import string
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["draw"]

_DEEPEST = 6
_SPREAD = 100  # of a number without bounds
_WORDS = ("alpha", "north", "7", "yes", "blue", "x")
_FORMATS = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:00:00Z",
    "time": "12:00:00Z",
    "email": "someone@example.org",
    "uri": "https://example.org/",
    "uuid": "9b2f5c1e-6a3d-4e8f-8c7b-0d1e2f3a4b5c",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
}


def draw(schema: Mapping[str, Any] | bool, rng: random.Random, words: Sequence[str] = _WORDS) -> Any:
    """A value that ``schema`` is likely to allow; patterns and combined keywords are not solved.

    ``words`` are the candidates for free strings. The same generator state gives the same value.
    """
    root = schema if isinstance(schema, Mapping) else {}
    return _Draw(root, rng, words or _WORDS).value(schema, 0)


class _Draw:
    def __init__(self, root: Mapping[str, Any], rng: random.Random, words: Sequence[str]) -> None:
        self._root, self._rng, self._words = root, rng, words

    def value(self, schema: Any, depth: int) -> Any:
        schema = self._resolved(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._rng.choice(list(schema["enum"]))
        for key in ("anyOf", "oneOf"):
            options = [option for option in schema.get(key) or () if isinstance(option, Mapping)]
            if options:
                chosen = self._rng.choice(self._shallow(options, depth))
                rest = {name: value for name, value in schema.items() if name != key}
                return self.value({**rest, **self._resolved(chosen, depth)}, depth + 1)
        match self._kind(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer":
                return self._integer(schema)
            case "number":
                return self._number(schema)
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
        return self._string(schema)

    def _resolved(self, schema: Any, depth: int) -> dict[str, Any]:
        """The schema without ``$ref`` and ``allOf``."""
        if not isinstance(schema, Mapping):
            return {}
        found = dict(schema)
        for _ in range(_DEEPEST):
            reference = found.pop("$ref", None)
            if not isinstance(reference, str):
                break
            target: Any = self._root
            for part in reference.removeprefix("#").strip("/").split("/"):
                name = part.replace("~1", "/").replace("~0", "~")
                target = target.get(name, {}) if isinstance(target, Mapping) else {}
            found = {**(target if isinstance(target, Mapping) else {}), **found}
        if depth > 2 * _DEEPEST:
            return found
        for part in found.pop("allOf", None) or ():
            other = self._resolved(part, depth + 1)
            properties = {**other.get("properties", {}), **found.get("properties", {})}
            required = [*found.get("required", ()), *other.get("required", ())]
            found = {**other, **found}
            if properties:
                found |= {"properties": properties, "required": required}
        return found

    def _shallow(self, options: Sequence[Mapping[str, Any]], depth: int) -> Sequence[Mapping[str, Any]]:
        """Alternatives without further nesting, if any, at great depth: a recursive schema must terminate."""
        if depth < _DEEPEST:
            return options
        flat = [o for o in options if self._kind(self._resolved(o, depth)) not in ("object", "array")]
        return flat or options

    def _kind(self, schema: Mapping[str, Any]) -> str:
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            return str(self._rng.choice(kind))
        if isinstance(kind, str):
            return kind
        if "properties" in schema:
            return "object"
        return "array" if "items" in schema else "string"

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = set(schema.get("required") or ())
        properties: Mapping[str, Any] = schema.get("properties") or {}
        return {
            name: self.value(inner, depth + 1)
            for name, inner in properties.items()
            if name in required or (depth < _DEEPEST and self._rng.random() < 0.5)
        }

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        heads: Sequence[Any] = schema.get("prefixItems") or ()
        least = int(schema.get("minItems", 0))
        most = int(schema.get("maxItems", max(least, len(heads), 0 if depth >= _DEEPEST else 3)))
        length = self._rng.randint(min(least, most), max(most, least))
        found: list[Any] = []
        for position in range(length):
            inner = heads[position] if position < len(heads) else schema.get("items", {})
            value = self.value(inner, depth + 1)
            if not schema.get("uniqueItems") or value not in found:
                found.append(value)
        return found

    def _bounds(self, schema: Mapping[str, Any]) -> tuple[float, float]:
        lows = _numbers(schema.get("minimum"), schema.get("exclusiveMinimum"))
        highs = _numbers(schema.get("maximum"), schema.get("exclusiveMaximum"))
        if lows and highs:
            return max(lows), max(max(lows), min(highs))
        if lows:
            return max(lows), max(lows) + _SPREAD
        if highs:
            return min(highs) - _SPREAD, min(highs)
        return 0.0, float(_SPREAD)

    def _integer(self, schema: Mapping[str, Any]) -> int:
        low, high = self._bounds(schema)
        first, last = math.ceil(low), math.floor(high)
        first += first == schema.get("exclusiveMinimum")
        last -= last == schema.get("exclusiveMaximum")
        step = int(schema["multipleOf"]) if _is_number(schema.get("multipleOf")) else 1
        if step > 1:
            first, last = -(-first // step), last // step
        return self._rng.randint(first, max(first, last)) * max(step, 1)

    def _number(self, schema: Mapping[str, Any]) -> float:
        low, high = self._bounds(schema)
        value = round(self._rng.uniform(low, high), 3)
        if not low < value < high:  # rounding must not leave the range or reach an excluded bound
            value = (low + high) / 2
        step = schema.get("multipleOf")
        return round(value / step) * step if _is_number(step) and step else value

    def _string(self, schema: Mapping[str, Any]) -> str:
        example = schema.get("examples") or schema.get("example")
        if isinstance(example, list) and example:
            example = self._rng.choice(example)
        if isinstance(example, str):
            return example
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        text = self._rng.choice(self._words)
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        text += "".join(self._rng.choices(string.ascii_lowercase, k=max(0, least - len(text))))
        return text if most is None else text[: int(most)]


def _numbers(*values: Any) -> list[float]:
    return [float(value) for value in values if _is_number(value)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
