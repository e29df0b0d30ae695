"""Targets of adapters read as they were written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orsay.adapters.spelling import read, unknown_setting, write
from orsay.errors import LoadError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=4))
def test_what_is_written_is_read(settings: dict[str, object]) -> None:
    kind, _, rest = write("kind", "Name-v1", settings).partition(":")
    assert kind == "kind"
    name, found = read(rest)
    assert name == "Name-v1"
    assert found == settings
    assert {key: type(value) for key, value in found.items()} == {
        key: type(value) for key, value in settings.items()
    }


def test_values_are_json_or_else_words() -> None:
    text = 'N?a=false&b=3&c=0.5&d=left&e=["x",1]&f="3"&g=True&h=None&i=NaN&j=a%26b&k='
    assert read(text)[1] == {
        "a": False,
        "b": 3,
        "c": 0.5,
        "d": "left",
        "e": ["x", 1],
        "f": "3",
        "g": True,
        "h": None,
        "i": "NaN",
        "j": "a&b",
        "k": "",
    }


def test_a_url_is_a_name() -> None:
    assert read("http://host:80/path?seed=2") == ("http://host:80/path", {"seed": 2})


@pytest.mark.parametrize(
    ("text", "problem"), [("N?a", "'a' in"), ("N?=1", "no setting"), ("N?a=1&a=2", "twice")]
)
def test_what_is_no_setting_is_reported(text: str, problem: str) -> None:
    with pytest.raises(LoadError, match=problem):
        read(text)


@pytest.mark.parametrize("value", [object(), float("nan"), {1: 2}, (1, 2), {"a": lambda: 0}])
def test_what_would_not_read_as_itself_is_not_written(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        write("kind", "N", {"a": value})


def test_an_unknown_setting_names_the_nearest_or_all() -> None:
    assert "did you mean 'slippery'?" in str(unknown_setting("k", "N", "slipery", ["slippery", "map"]))
    assert "there are: map, slippery" in str(unknown_setting("k", "N", "zzz", ["slippery", "map"]))
