"""Input form for the arguments of a tool, made from the tool's JSON schema.

Checks simple rules of a schema for immediate feedback; the server validates everything again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Field", "NotAnswered", "Wrong", "ask_arguments", "fields_of"]

Schema = Mapping[str, Any]
_LEFT_OUT = object()
_BRACKETS = {"array": "[", "object": "{"}
_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "yes or no",
    "array": "list",
    "object": "JSON object",
    "null": "null",
}
_YES, _NO = frozenset({"yes", "y", "true", "1"}), frozenset({"no", "n", "false", "0"})


class Wrong(ValueError):
    """Invalid value for a field; the text describes valid ones."""


class NotAnswered(Exception):
    """The user left the form."""


@dataclass(frozen=True, slots=True)
class Field:
    """One argument. ``schema`` has its references resolved, and no ``null`` alternative."""

    name: str
    schema: Schema
    required: bool
    nullable: bool
    description: str

    @property
    def kind(self) -> str:
        """Description of valid input."""
        choices = _choices(self.schema)
        if choices is not None:
            return "one of " + ", ".join(_plain(choice) for choice in choices)
        types = _types(self.schema)
        if not types:
            return "JSON"
        names = [_KINDS.get(each, each) for each in types]
        if types == ["array"]:
            items = self.schema.get("items")
            inner = _types(items) if isinstance(items, Mapping) else []
            if len(inner) == 1 and inner[0] not in _BRACKETS:
                names = [f"list of {_KINDS.get(inner[0], inner[0])}s, separated by commas or as JSON"]
            else:
                names = ["JSON list"]
        return " or ".join(names) + _bounds(self.schema)

    @property
    def note(self) -> str:
        """Result of an empty input."""
        if self.required:
            return ""
        default = self.schema.get("default", _LEFT_OUT)
        return "optional" if default is _LEFT_OUT or default is None else f"default {_plain(default)}"

    def read(self, text: str) -> Any:
        """Parse ``text``. Raises Wrong."""
        if self.nullable and text.strip().lower() == "null":
            return None
        choices = _choices(self.schema)
        if choices is not None:
            for choice in choices:
                if text.strip() == _plain(choice):
                    return choice
            raise Wrong(f"choose {self.kind}")
        types = _types(self.schema)
        value = _read_any(text, types) if types else _read_json(text)
        _check_bounds(value, self.schema)
        return value


def fields_of(schema: Schema) -> list[Field]:
    """The fields of a tool's input schema, in its order."""
    root = _resolve(schema, schema)
    required = root.get("required", ())
    found = []
    for name, raw in root.get("properties", {}).items():
        inner, nullable = _without_null(_resolve(raw, schema), schema)
        description = str(raw.get("description") or inner.get("description") or "")
        found.append(Field(name, inner, name in required, nullable, description))
    return found


def ask_arguments(
    schema: Schema | None, read: Callable[[], str], show: Callable[[str, str], object]
) -> dict[str, Any]:
    """Ask for every field until its value is valid. ``show(kind, text)`` shows a question or an error.

    Empty input leaves an optional field out. Raises NotAnswered for ``/back``.
    """
    arguments: dict[str, Any] = {}
    for field in fields_of(schema or {}):
        note = f" ({field.note})" if field.note else ""
        about = f": {field.description}" if field.description else ""
        show("question", f"{field.name}, {field.kind}{note}{about}")
        value = _ask(field, read, show)
        if value is not _LEFT_OUT:
            arguments[field.name] = value
    return arguments


def _ask(field: Field, read: Callable[[], str], show: Callable[[str, str], object]) -> Any:
    while True:
        text = read()
        if text.strip() == "/back":
            raise NotAnswered
        if not text.strip() and not field.required:
            return _LEFT_OUT
        if not text.strip() and "string" not in _types(field.schema):
            show("complaint", f"{field.name} needs a value: {field.kind}; /back leaves this tool")
            continue
        if text == "":
            show("complaint", f'{field.name} needs a text; type "" for an empty one')
            continue
        try:
            return field.read(text)
        except Wrong as wrong:
            show("complaint", f"{field.name}: {wrong}")


def _resolve(schema: Any, root: Schema) -> Schema:
    """Replace a schema's ``$ref``, and an ``allOf`` with one member, by their target."""
    seen = 0
    while isinstance(schema, Mapping) and seen < 20:
        seen += 1
        reference, only = schema.get("$ref"), schema.get("allOf")
        if isinstance(reference, str) and reference.startswith("#/"):
            target: Any = root
            for part in reference[2:].split("/"):
                target = target.get(part, {}) if isinstance(target, Mapping) else {}
            inner: Any = target
        elif isinstance(only, list) and len(only) == 1:
            inner = only[0]
        else:
            return schema
        outer = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        schema = {**inner, **outer} if isinstance(inner, Mapping) else outer
    return schema if isinstance(schema, Mapping) else {}


def _without_null(schema: Schema, root: Schema) -> tuple[Schema, bool]:
    branches = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(branches, list):
        resolved = [_resolve(branch, root) for branch in branches]
        rest = [branch for branch in resolved if branch.get("type") != "null"]
        outer = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
        nullable = len(rest) < len(resolved)
        if len(rest) == 1:
            return {**rest[0], **outer}, nullable
        types = [name for branch in rest for name in _types(branch)]
        plain = all(_types(branch) and _choices(branch) is None for branch in rest)
        return {**outer, **({"type": types} if plain else {})}, nullable
    types = _types(schema)
    if "null" in types and len(types) > 1:
        return {**schema, "type": [name for name in types if name != "null"]}, True
    return schema, types == ["null"]


def _types(schema: Schema) -> list[str]:
    found = schema.get("type")
    if isinstance(found, str):
        return [found]
    return [str(name) for name in found] if isinstance(found, list) else []


def _choices(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_any(text: str, types: list[str]) -> Any:
    """The value as the first matching type of ``types``; string is last, since any input is one."""
    complaint: Wrong | None = None
    for name in sorted(types, key=lambda each: each == "string"):
        try:
            return _READERS.get(name, _read_json)(text)
        except Wrong as wrong:
            complaint = wrong
    raise complaint or Wrong("cannot be read")


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise Wrong(f"this is no JSON: {exc}") from None


def _read_text(text: str) -> str:
    """The text as typed, or a quoted JSON string for characters that are hard to type."""
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    return text


def _read_integer(text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise Wrong(f"{text.strip()!r} is no whole number, such as 42") from None


def _read_number(text: str) -> float:
    try:
        value = float(text.strip())
    except ValueError:
        raise Wrong(f"{text.strip()!r} is no number, such as 3.5") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise Wrong("a number must be finite")
    return value


def _read_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _YES | _NO:
        raise Wrong("type yes or no")
    return word in _YES


def _read_list(text: str) -> list[Any]:
    if text.strip().startswith("["):
        found: list[Any] = _read_json(text)
        return found
    parts = [part.strip() for part in text.split(",")]
    return [_loose(part) for part in parts if part]


def _loose(part: str) -> Any:
    """An item of a comma-separated list, as a number if it looks like one; the server validates it."""
    try:
        value = json.loads(part)
    except ValueError:
        return part
    return value if isinstance(value, int | float | bool | str) else part


def _read_object(text: str) -> dict[str, Any]:
    value = _read_json(text)
    if not isinstance(value, dict):
        raise Wrong('type a JSON object, such as {"name": 1}')
    return value


def _read_null(text: str) -> None:
    if text.strip().lower() != "null":
        raise Wrong("type null")


_READERS: dict[str, Callable[[str], Any]] = {
    "string": _read_text,
    "integer": _read_integer,
    "number": _read_number,
    "boolean": _read_boolean,
    "array": _read_list,
    "object": _read_object,
    "null": _read_null,
}


def _bounds(schema: Schema) -> str:
    texts = [
        f"{words} {schema[key]}"
        for key, words in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "more than"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "less than"),
        )
        if key in schema
    ]
    return f", {' and '.join(texts)}" if texts else ""


def _check_bounds(value: Any, schema: Schema) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        fits = (
            value >= schema.get("minimum", value)
            and value <= schema.get("maximum", value)
            and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
            and ("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
        )
        if not fits:
            raise Wrong(f"must be {_bounds(schema).removeprefix(', ')}")
    if isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            raise Wrong(f"must have at least {schema['minLength']} characters")
        if "maxLength" in schema and len(value) > schema["maxLength"]:
            raise Wrong(f"must have at most {schema['maxLength']} characters")
        if "pattern" in schema and not _matches(schema["pattern"], value):
            raise Wrong(f"must match {schema['pattern']}")


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:  # a regex dialect that Python cannot parse; the server decides
        return True
