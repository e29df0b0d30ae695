"""Drawn inputs are what their schemas allow."""

from __future__ import annotations

import random
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from orsay_eval.draw import draw
from pydantic import BaseModel, Field


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: float = 0.5


class Tree(BaseModel):
    name: str
    children: list[Tree] = []
    left: Tree | None = None


class Order(BaseModel):
    count: Annotated[int, Field(ge=1, le=9)]
    weight: Annotated[float, Field(gt=0, lt=1)]
    even: Annotated[int, Field(multiple_of=2, gt=3, lt=9)]
    word: Annotated[str, Field(min_length=8, max_length=12)]
    size: Literal["small", "large"]
    colour: Colour
    points: Annotated[list[Point], Field(min_length=1, max_length=3)]
    pair: tuple[int, str]
    extra: int | str | None = None
    deep: Tree | None = None


SCHEMAS: dict[str, Any] = {
    "nested models": Order.model_json_schema(),
    "a recursive model": Tree.model_json_schema(),
    "allOf": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "boolean"}}, "required": ["b"]},
        ]
    },
    "several types": {"type": ["integer", "null"], "maximum": -5},
    "const": {"const": {"a": [1]}},
    "oneOf": {"oneOf": [{"type": "string", "maxLength": 2}, {"type": "array", "items": {"type": "null"}}]},
    "unique items": {"type": "array", "uniqueItems": True, "items": {"type": "boolean"}},
    "bounds that leave one": {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5},
    "nothing said": {},
    "no properties": {"type": "object"},
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_a_drawn_value_is_valid(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    rng = random.Random(0)
    for _ in range(100):
        jsonschema.validate(draw(schema, rng), schema)


def test_values_vary_and_come_back_with_the_seed() -> None:
    schema = Order.model_json_schema()
    first = [draw(schema, random.Random(seed)) for seed in range(20)]
    assert first == [draw(schema, random.Random(seed)) for seed in range(20)]
    assert len({value["count"] for value in first}) > 3
    assert {"extra" in value for value in first} == {True, False}


def test_free_strings_are_words_that_were_seen() -> None:
    found = {draw({"type": "string"}, random.Random(seed), ["left", "right"]) for seed in range(20)}
    assert found == {"left", "right"}


def test_examples_and_formats_are_taken() -> None:
    assert draw({"type": "string", "examples": ["e4"]}, random.Random(0)) == "e4"
    assert draw({"type": "string", "format": "date"}, random.Random(0)) == "2024-02-29"


def test_a_broken_schema_draws_something() -> None:
    broken: list[Any] = [True, {"$ref": "#/$defs/nowhere"}, {"$ref": "#"}, {"enum": []}]
    for schema in broken:
        draw(schema, random.Random(0))
