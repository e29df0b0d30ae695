"""Lines of the keys of a TOML document."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orsay.config.lines import Lines

DOCUMENT = '''\
# a comment with [brackets] and = signs
title = "a # b" # c
'quoted key' = 1
"with \\"quotes\\"" = 'x'
many = [
  1, # one
  [2, 3], "]",
  { a = 1, b = { c = [
     "deep" ] } },
]
text = """
[not.a.table]
key = 1
"""
raw = \'\'\'
'quoted'
[neither]\'\'\'

[environments.echo]
class = "a:B"
variables = { ONE = "1", "TWO.2" = "2" }

[environments."odd name".deep]
x.y.z = 2024-01-01

[[rows]]
n = 1
[[rows]]
n = 2
[rows.inner]
m = 3
'''


def test_keys_are_found_in_their_lines() -> None:
    assert tomllib.loads(DOCUMENT)
    lines = Lines(DOCUMENT)
    for path, line in {
        ("title",): 2,
        ("quoted key",): 3,
        ('with "quotes"',): 4,
        ("many",): 5,
        ("many", 0): 6,
        ("many", 1, 1): 7,
        ("many", 3, "a"): 8,
        ("many", 3, "b", "c", 0): 9,
        ("text",): 11,
        ("raw",): 15,
        ("environments", "echo"): 19,
        ("environments", "echo", "class"): 20,
        ("environments", "echo", "variables", "TWO.2"): 21,
        ("environments", "odd name", "deep"): 23,
        ("environments", "odd name", "deep", "x", "y", "z"): 24,
        ("rows", 0, "n"): 27,
        ("rows", 1, "n"): 29,
        ("rows", 1, "inner", "m"): 31,
    }.items():
        assert lines.of(path) == line, path


def test_what_has_no_line_of_its_own_is_where_its_table_is() -> None:
    lines = Lines(DOCUMENT)
    assert lines.of(("environments", "echo", "nothing", "more")) == 19
    assert lines.of(("nowhere",)) == 1


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n#comments", "a = 1", "\r\na = 1\r\nb = 2\r\n"])
def test_short_documents_have_lines_too(text: str) -> None:
    lines = Lines(text)
    for path in paths(tomllib.loads(text)):
        assert text.replace("\r\n", "\n").split("\n")[lines.of(path) - 1].startswith(str(path[0]))


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
scalars = words | st.integers(-(2**40), 2**40) | st.booleans()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


def quoted(text: str) -> str:
    escaped = "".join(c if c.isalnum() or c in " []{}=,.#'" else f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'


def written(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[ # a list\n" + "".join(f"{written(each)},\n" for each in value) + "]"
    return str(value)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([path] if path else []), *(p for key, each in inner for p in paths(each, (*path, key)))]


@given(st.dictionaries(words, values, max_size=4), st.dictionaries(words, values, max_size=4))
def test_every_key_of_any_document_is_on_a_line_that_shows_it(top: Any, table: Any) -> None:
    text = "".join(f"{quoted(key)} = {written(each)}\n" for key, each in top.items())
    text += '["the table"]\n' + "".join(f"{quoted(key)} = {written(each)}\n" for key, each in table.items())
    if "the table" in top:
        return
    assert tomllib.loads(text) == {**top, "the table": table}
    lines = Lines(text)
    for path in paths({**top, "the table": table}):
        shown = text.split("\n")[lines.of(path) - 1]
        last = path[-1]
        assert (
            isinstance(last, int)
            or quoted(last) in shown
            or (last == "the table" and '["the table"]' in shown)
        )
