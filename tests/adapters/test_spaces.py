"""Gymnasium's spaces as types: what is sampled survives JSON and the type made for its space."""

import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

np: Any = pytest.importorskip("numpy")
pytest.importorskip("gymnasium", reason="needs the extra gymnasium")

from gymnasium import spaces  # noqa: E402  # after the check that it is there
from orsay.adapters.spaces import (  # noqa: E402
    UnsupportedSpace,
    annotation,
    encode,
    is_picture,
    to_blocks,
)

shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
floats = st.floats(-32768, 32768, width=16)


@st.composite
def boxes(draw: st.DrawFn) -> Any:
    shape = draw(shapes)
    kind = draw(st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.uint8, np.int64]))
    size = int(np.prod(shape))
    if np.dtype(kind).kind == "f":
        pairs = draw(st.lists(st.tuples(floats, floats), min_size=size, max_size=size))
        if draw(st.booleans()) and kind is not np.float16:
            pairs = [(low / 7, high * 3.3) for low, high in pairs]
    else:
        span = st.integers(0 if kind is np.uint8 else -100, 100)
        pairs = draw(st.lists(st.tuples(span, span), min_size=size, max_size=size))
    low = np.array([min(pair) for pair in pairs], dtype=kind).reshape(shape)
    high = np.array([max(pair) for pair in pairs], dtype=kind).reshape(shape)
    return spaces.Box(low, high, dtype=kind)


@st.composite
def flat_spaces(draw: st.DrawFn) -> Any:
    match draw(st.integers(0, 4)):
        case 0:
            return spaces.Discrete(draw(st.integers(1, 9)), start=draw(st.integers(-5, 5)))
        case 1:
            shape = draw(shapes)
            size = int(np.prod(shape))
            counts = draw(st.lists(st.integers(1, 7), min_size=size, max_size=size))
            return spaces.MultiDiscrete(np.array(counts).reshape(shape))
        case 2:
            return spaces.MultiBinary(
                draw(st.integers(1, 5) | st.lists(st.integers(1, 3), min_size=1, max_size=2))
            )
        case 3:
            return spaces.Text(draw(st.integers(1, 12)), charset="abcæ ")
        case _:
            return draw(boxes())


all_spaces = st.recursive(
    flat_spaces(),
    lambda inner: (
        st.dictionaries(st.text(min_size=1, max_size=5), inner, min_size=1, max_size=3).map(spaces.Dict)
        | st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple)
    ),
    max_leaves=4,
)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    return bool(np.array_equal(left, right))


@given(all_spaces, st.integers(0, 2**32 - 1))
def test_an_element_goes_through_json_and_the_type_and_comes_back(space: Any, seed: int) -> None:
    space.seed(seed)
    element = space.sample()
    written = json.loads(json.dumps(encode(space, element)))
    adapter = TypeAdapter(annotation(space))
    back = adapter.validate_python(written)
    assert space.contains(back)
    assert same(element, back)


@given(all_spaces, st.integers(0, 2**32 - 1))
def test_the_published_schema_takes_every_element(space: Any, seed: int) -> None:
    import jsonschema

    space.seed(seed)
    schema = TypeAdapter(annotation(space)).json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(json.dumps(encode(space, space.sample()))), schema)


@given(boxes())
def test_the_bounds_themselves_are_elements(space: Any) -> None:
    adapter = TypeAdapter(annotation(space))
    for bound in (space.low, space.high):
        assert space.contains(adapter.validate_python(encode(space, bound)))


@pytest.mark.parametrize(
    ("space", "outside"),
    [
        (spaces.Discrete(3, start=1), [0, 4, "x", 1.5, None, [1]]),
        (spaces.Box(-1.0, 1.0, (2,)), [[0.0], [0.0, 1.5], [0.0, float("nan")], "x", [0, 0, 0]]),
        (spaces.MultiDiscrete([2, 3]), [[2, 0], [0, 3], [0], [0, 0, 0], [-1, 0]]),
        (spaces.MultiBinary(2), [[2, 0], [0], [True, "x"]]),
        (spaces.Text(3, charset="ab"), ["abab", "c", "", 3]),
        (spaces.Dict(a=spaces.Discrete(2)), [{}, {"a": 2}, []]),
        (spaces.Tuple([spaces.Discrete(2)] * 2), [[0], [0, 2]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_lies_outside_is_refused(space: Any, outside: list[Any]) -> None:
    adapter = TypeAdapter(annotation(space))
    for value in outside:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


def test_bounds_are_in_the_schema() -> None:
    schema = TypeAdapter(annotation(spaces.Discrete(3, start=1), description="1: up")).json_schema()
    assert schema == {"type": "integer", "minimum": 1, "maximum": 3, "description": "1: up"}
    schema = TypeAdapter(annotation(spaces.Box(np.float32(0.1), np.float32(0.7), (2,)))).json_schema()
    assert schema["items"] == {"type": "number", "minimum": 0.1, "maximum": 0.7}
    assert (schema["minItems"], schema["maxItems"]) == (2, 2)
    schema = TypeAdapter(annotation(spaces.MultiDiscrete([2, 5]))).json_schema()
    assert [item["maximum"] for item in schema["prefixItems"]] == [1, 4]
    unbounded = TypeAdapter(annotation(spaces.Box(-np.inf, np.inf, (1,)))).json_schema()
    assert unbounded["items"] == {"type": "number"}


def test_an_array_of_many_bounds_shows_the_widest_and_still_checks_each() -> None:
    high = np.arange(1, 101, dtype=np.float32)
    adapter = TypeAdapter(annotation(spaces.Box(np.zeros(100, np.float32), high)))
    assert adapter.json_schema()["items"]["maximum"] == 100
    adapter.validate_python([1.0] * 100)
    with pytest.raises(ValidationError, match="not an element"):
        adapter.validate_python([2.0] * 100)


def test_a_space_without_a_json_form_is_refused() -> None:
    with pytest.raises(UnsupportedSpace, match="Graph"):
        annotation(spaces.Graph(spaces.Discrete(2), None))


def test_pictures_become_images_and_the_rest_text() -> None:
    picture = spaces.Box(0, 255, (32, 24, 3), np.uint8)
    assert is_picture(picture) and is_picture(spaces.Box(0, 255, (32, 24), np.uint8))
    assert not is_picture(spaces.Box(0, 255, (128,), np.uint8))
    assert not is_picture(spaces.Box(0, 1, (32, 24, 3), np.float32))
    both = spaces.Dict(view=picture, speed=spaces.Discrete(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text, image = to_blocks(both, both.sample())
    assert set(json.loads(text)) == {"speed"}
    assert image.shape == (32, 24, 3)
    assert to_blocks(spaces.Text(5), "abc") == ["abc"]
    assert to_blocks(spaces.Box(-1, 1, (1,)), np.array([0.7], np.float32)) == ["[0.7]"]
