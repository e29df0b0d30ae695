"""Gymnasium's spaces as types of tool arguments, and their elements as JSON and as blocks.

Imports gymnasium and numpy, so it is itself imported only where an environment of Gymnasium is made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import numpy as np
import typing_extensions
from gymnasium import spaces
from pydantic import AfterValidator, Field

from .plain import plain, short_float

__all__ = ["UnsupportedSpace", "annotation", "decode", "encode", "is_picture", "to_blocks"]

_TYPED_DICT: Any = vars(typing_extensions)["TypedDict"]  # called with keys that are data
_SMALLEST_PICTURE = 16
_MOST_BOUNDS = 64
"""Arrays with more numbers than this have one pair of bounds in the schema, the widest."""


class UnsupportedSpace(TypeError):
    """The space has elements without a JSON form."""


def annotation(space: spaces.Space[Any], *, description: str = "") -> Any:
    """A type whose validation takes JSON and gives an element of ``space``; bounds are in its JSON schema.

    Raises UnsupportedSpace.
    """
    parts: list[Any] = [AfterValidator(partial(_element, space))]
    if description:
        parts.append(Field(description=description))
    return Annotated[(_json_type(space), *parts)]


def _element(space: spaces.Space[Any], value: Any) -> Any:
    element = decode(space, value)
    if not space.contains(element):
        raise ValueError(f"not an element of {space}")
    return element


def _json_type(space: spaces.Space[Any]) -> Any:
    match space:
        case spaces.Discrete():
            return _integer(int(space.start), int(space.start) + int(space.n) - 1)
        case spaces.MultiDiscrete():
            return _array(np.asarray(space.start), np.asarray(space.start) + space.nvec - 1, _integer)
        case spaces.MultiBinary():
            return _array(np.zeros(space.shape, int), np.ones(space.shape, int), _integer)
        case spaces.Box():
            leaf = _number if space.dtype is not None and space.dtype.kind == "f" else _integer
            return _array(space.low, space.high, leaf)
        case spaces.Text():
            return Annotated[str, Field(min_length=space.min_length, max_length=space.max_length)]
        case spaces.Dict():
            return _TYPED_DICT("Values", {key: annotation(each) for key, each in space.items()})
        case spaces.Tuple():
            return tuple.__class_getitem__(tuple(annotation(each) for each in space.spaces))
        case _:
            raise UnsupportedSpace(f"{type(space).__name__} has no form as the argument of a tool")


def _integer(low: Any, high: Any) -> Any:
    return Annotated[int, Field(ge=int(low), le=int(high))]


def _number(low: Any, high: Any) -> Any:
    bounds: dict[str, Any] = {
        key: short_float(value) for key, value in (("ge", low), ("le", high)) if math.isfinite(float(value))
    }
    return Annotated[float, Field(allow_inf_nan=False, **bounds)]


def _array(low: Any, high: Any, leaf: Callable[[Any, Any], Any]) -> Any:
    """Type of nested lists of the shape of ``low``; tuples where each position has its own bounds."""
    if low.ndim == 0:
        return leaf(low, high)
    count = low.shape[0]
    same = count == 0 or (bool((low == low[0]).all()) and bool((high == high[0]).all()))
    if not same and low.size <= _MOST_BOUNDS:
        return tuple.__class_getitem__(tuple(_array(low[at], high[at], leaf) for at in range(count)))
    inner: Any = _array(low.min(axis=0), high.max(axis=0), leaf) if count else Any
    return Annotated[list.__class_getitem__(inner), Field(min_length=count, max_length=count)]


def decode(space: spaces.Space[Any], value: Any) -> Any:
    """The element of ``space`` that JSON data stands for; the inverse of ``encode``."""
    match space:
        case spaces.Discrete():
            return np.asarray(value, dtype=space.dtype)[()]
        case spaces.Box() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return np.asarray(value, dtype=space.dtype).reshape(space.shape)
        case spaces.Dict():
            return {key: decode(each, value[key]) for key, each in space.items()}
        case spaces.Tuple():
            return tuple(decode(each, item) for each, item in zip(space.spaces, value, strict=True))
        case _:
            return value


def encode(space: spaces.Space[Any], element: Any) -> Any:
    """JSON data for an element of ``space``. Numbers are written as short as their precision allows."""
    match space:
        case spaces.Dict():
            return {key: encode(each, element[key]) for key, each in space.items()}
        case spaces.Tuple():
            return [encode(each, item) for each, item in zip(space.spaces, element, strict=True)]
        case spaces.Sequence():
            return [plain(item) for item in element]
        case _:
            return plain(element)


def is_picture(space: spaces.Space[Any]) -> bool:
    """True for images: bytes from 0 to 255, in rows and columns, grey or in three colours."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return False
    if len(space.shape) == 3 and space.shape[2] not in (1, 3):
        return False
    return min(space.shape[:2]) >= _SMALLEST_PICTURE and int(space.high.max()) == 255


def to_blocks(space: spaces.Space[Any], element: Any) -> list[Any]:
    """An observation for a model: text, and arrays that are images."""
    if is_picture(space):
        return [np.asarray(element)]
    if isinstance(space, spaces.Text):
        return [str(element)]
    if isinstance(space, spaces.Dict):
        pictures = [key for key, each in space.items() if is_picture(each)]
        rest = {key: encode(each, element[key]) for key, each in space.items() if key not in pictures}
        texts = [json.dumps(rest, ensure_ascii=False)] if rest else []
        return [*texts, *(np.asarray(element[key]) for key in pictures)]
    return [json.dumps(encode(space, element), ensure_ascii=False)]
