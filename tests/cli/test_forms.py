"""Arguments asked from a JSON schema, in the shapes that schemas come in."""

from __future__ import annotations

from typing import Any

import pytest
from orsay.cli.forms import NotAnswered, Wrong, ask_arguments, fields_of


def field(schema: dict[str, Any], **root: Any) -> Any:
    return fields_of({"properties": {"it": schema}, "required": ["it"], **root})[0]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "text"),
        ({"type": "integer", "minimum": 2}, "whole number, at least 2"),
        ({"type": "number", "exclusiveMaximum": 1}, "number, less than 1"),
        ({"type": "boolean"}, "yes or no"),
        ({"enum": ["a", 1, None]}, "one of a, 1, null"),
        ({"const": "only"}, "one of only"),
        (
            {"type": "array", "items": {"type": "integer"}},
            "list of whole numbers, separated by commas or as JSON",
        ),
        ({"type": "array", "items": {"type": "object"}}, "JSON list"),
        ({"type": "object"}, "JSON object"),
        ({}, "JSON"),
        ({"type": ["string", "null"]}, "text"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "whole number"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "whole number or text"),
        ({"anyOf": [{"$ref": "#/$defs/P"}, {"type": "string"}]}, "JSON object or text"),
        ({"$ref": "#/$defs/C"}, "one of red, blue"),
        ({"allOf": [{"$ref": "#/$defs/C"}], "default": "red"}, "one of red, blue"),
        ({"$ref": "#/$defs/Gone"}, "JSON"),
    ],
)
def test_a_field_says_what_to_type(schema: dict[str, Any], kind: str) -> None:
    defs = {"P": {"type": "object"}, "C": {"enum": ["red", "blue"], "type": "string"}}
    assert field(schema, **{"$defs": defs}).kind == kind


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, " spaces stay ", " spaces stay "),
        ({"type": "string"}, '"a\\tb"', "a\tb"),
        ({"type": "string"}, '"', '"'),
        ({"type": "string"}, '"quoted" and "more"', '"quoted" and "more"'),
        ({"type": "integer"}, " -3 ", -3),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "boolean"}, "NO", False),
        ({"enum": ["a", 1, None]}, "1", 1),
        ({"enum": ["a", 1, None]}, "null", None),
        ({"type": "array"}, '[1, "b"]', [1, "b"]),
        ({"type": "array"}, "1, b, ", [1, "b"]),
        ({"type": "object"}, '{"a": []}', {"a": []}),
        ({"type": ["integer", "string"]}, "7", 7),
        ({"type": ["string", "integer"]}, "seven", "seven"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({}, "[true]", [True]),
        ({"type": "string", "pattern": "("}, "anything", "anything"),
    ],
)
def test_what_is_typed_becomes_a_value(schema: dict[str, Any], typed: str, value: Any) -> None:
    read = field(schema).read(typed)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "typed"),
    [
        ({"type": "integer"}, "1.5"),
        ({"type": "number"}, "nan"),
        ({"type": "number", "maximum": 2}, "2.5"),
        ({"type": "boolean"}, "maybe"),
        ({"enum": ["a"]}, "b"),
        ({"type": "object"}, "[]"),
        ({"type": "array"}, "[1"),
        ({"type": "string", "minLength": 3}, "ab"),
        ({"type": "string", "maxLength": 1}, "ab"),
        ({"type": "string", "pattern": "^a"}, "b"),
        ({}, "{"),
    ],
)
def test_what_does_not_fit_is_refused(schema: dict[str, Any], typed: str) -> None:
    with pytest.raises(Wrong):
        field(schema).read(typed)


def test_a_tool_without_arguments_asks_nothing() -> None:
    assert ask_arguments(None, lambda: pytest.fail("asked"), lambda kind, text: None) == {}


def test_going_back_ends_the_form() -> None:
    schema = {"properties": {"a": {"type": "string"}}}
    with pytest.raises(NotAnswered):
        ask_arguments(schema, lambda: "/back", lambda kind, text: None)
