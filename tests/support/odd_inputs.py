"""What models write: arguments, names and texts that no tool was made for, as values and as raw text."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

__all__ = ["ARGUMENTS", "INPUTS", "NAMES", "arguments", "inputs", "messages", "nested"]


def nested(depth: int, leaf: Any = 1) -> dict[str, Any]:
    """An object in an object, and so on."""
    found: Any = leaf
    for _ in range(depth):
        found = {"a": found}
    return {"text": found}


INPUTS: dict[str, Any] = {
    **{f"nested {depth}": nested(depth) for depth in (100, 199, 250, 950, 3_000, 100_000)},
    "half of a pair": {"text": "\ud800"},
    "the other half": {"text": "a\udc80b"},
    "half of a pair as a name": {"\ud800": "x"},
    "NaN": {"text": float("nan")},
    "Infinity": {"text": float("-inf")},
    "beyond 64 bits": {"text": 2**65},
    "4,000 digits": {"text": 10**3_999},
    "5,000 digits": {"text": -(10**4_999)},
    "over the limit of a body": {"text": "x" * (33 * 2**20)},
    "a list": [1],
    "a text": '{"text": "x"}',
    "a number": 3,
    "names that are no text": {1: 2},
    "bytes": {"text": b"x"},
    "an object of Python's own": {"text": {1}},
    "nothing that fits": {},
}
"""Inputs of a tool that takes a text, ``text``: each is refused."""

NAMES: dict[str, Any] = {
    "empty": "",
    "10 kB": "n" * 10_240,
    "NUL": "no\0te",
    "slashes": "../note?x=1#y",
    "half of a pair": "\ud800",
    "a number": 3,
    "nothing": None,
    "an object": {"name": "note"},
    "a list": ["note"],
}
"""Names that no tool has."""

ARGUMENTS: dict[str, str] = {
    **{
        f"nested {depth}": '{"text":' * depth + "1" + "}" * depth for depth in (199, 250, 950, 3_000, 100_000)
    },
    "half of a pair": '{"text": "\\ud800"}',
    "half of a pair as it is": '{"text": "\ud800"}',
    "half of a pair as a name": '{"\\ud800": "x"}',
    "NaN": '{"text": NaN}',
    "Infinity": '{"text": -Infinity}',
    "too large a number": '{"text": 1e400}',
    "beyond 64 bits": '{"text": 36893488147419103232}',
    "5,000 digits": '{"text": 1' + "0" * 5_000 + "}",
    "over the limit of a body": '{"text": "' + "x" * (33 * 2**20) + '"}',
    "a list": "[1]",
    "a text": '"x"',
    "JSON in a text": '"{\\"text\\": \\"x\\"}"',
    "null": "null",
    "a number": "3",
    "a comma too many": '{"text": "x",}',
    "cut off": '{"text": "x',
    "control characters": '{"text": "a\nb\x00"}',
    "a byte order mark": '\ufeff{"text": "x"}',
    "line ends of Unicode": "\u2028{\u2029}\u0085",
}
"""Arguments of the same tool, as models write them: each is refused, or is no JSON in the first place."""

_TEXTS = st.text(st.characters(codec=None), max_size=12)  # halves of surrogate pairs among them
_DIGITS = st.integers(4_290, 5_000).map(lambda digits: 10**digits)
_NUMBERS = st.one_of(st.integers(), st.floats(), st.integers(10**15, 10**40), _DIGITS)
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)),
    max_leaves=6,
)


def inputs() -> st.SearchStrategy[Any]:
    """What a caller may hand over as the input of a tool."""
    deep = st.integers(150, 1_500).map(nested)
    return st.one_of(_JSON, st.dictionaries(_TEXTS, _JSON, max_size=3), deep)


def arguments() -> st.SearchStrategy[Any]:
    """The arguments of a call in a chat completion: a text mostly, perhaps cut off."""
    whole = st.one_of(
        _TEXTS, inputs().map(_spelled), st.sampled_from(sorted(set(ARGUMENTS.values()), key=len)[:-3])
    )
    cut = st.tuples(whole, st.integers(0, 40)).map(lambda pair: pair[0][: pair[1]])
    return st.one_of(whole, cut, st.none(), _JSON.filter(_sendable))


def messages() -> st.SearchStrategy[dict[str, Any]]:
    """The message of a chat completion, of any shape that JSON has."""
    anything = _JSON.filter(_sendable)
    function = st.fixed_dictionaries(
        {},
        optional={
            "name": st.one_of(st.sampled_from(["note", "answer", ""]), anything),
            "arguments": arguments(),
        },
    )
    call = st.fixed_dictionaries(
        {},
        optional={
            "id": st.one_of(st.sampled_from(["call_0", "call_0", ""]), anything),
            "type": st.one_of(st.sampled_from(["function", "custom", "mcp"]), anything),
            "function": st.one_of(function, anything),
            "custom": st.one_of(function, anything),
        },
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "role": anything,
            "content": st.one_of(_TEXTS, anything),
            "reasoning_content": st.one_of(_TEXTS, anything),
            "tool_calls": st.one_of(st.lists(st.one_of(call, anything), max_size=3), anything),
        },
    )


def _spelled(value: Any) -> str:
    try:
        return json.dumps(value)
    except (ValueError, RecursionError):  # Python spells no number of 5,000 digits
        return str(type(value))


def _sendable(value: Any) -> bool:
    try:
        json.dumps(value)
    except (ValueError, RecursionError):
        return False
    return True
