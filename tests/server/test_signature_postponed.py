"""Tools in a module whose annotations are strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pytest
from orsay import Environment, Toolset, tool
from orsay.authoring.environment import Splits
from orsay.authoring.hosted import host
from orsay.authoring.tool_table import read_tools
from orsay.authoring.tools import ToolRow
from orsay.errors import LoadError
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from decimal import Decimal


def row(cls: type, name: str = "act") -> ToolRow:
    return {row.name: row for row in read_tools(cls, owner=None)}[name]


class Served(Environment):
    splits: ClassVar[Splits] = {"train": [{}]}

    def prompt(self) -> str:
        return ""


class Later(Served):
    """Its tool takes a model that is defined below."""

    @tool
    def act(self, args: Below) -> str:
        return ""

    @tool
    def parts(self, first: Below, rest: list[Below]) -> str:
        return ""


class Below(BaseModel):
    word: str


def test_string_annotations_are_resolved() -> None:
    class Env(Environment):
        @tool
        def act(
            self, way: Literal["up"], count: Annotated[int, Field(ge=1)] = 1, note: str | None = None
        ) -> str:
            return ""

    assert row(Env).bind({"way": "up"})[1] == {"way": "up", "count": 1, "note": None}


def test_a_model_defined_after_the_class_is_resolved_when_hosted() -> None:
    hosted = host(Later)
    assert hosted.tools["act"].bind({"word": "a"}) == ((Below(word="a"),), {})
    values = hosted.tools["parts"].bind({"first": {"word": "a"}, "rest": []})[1]
    assert values["first"] == Below(word="a")


def test_a_model_of_the_enclosing_function_or_class_is_found() -> None:
    class Args(BaseModel):
        word: str

    class Env(Environment):
        class Inner(BaseModel):
            number: int

        @tool(concurrent=True)
        def act(self, args: Args) -> str:
            return ""

        @tool
        def nested(self, args: Inner, more: list[Args]) -> str:
            return ""

    assert row(Env).bind({"word": "a"}) == ((Args(word="a"),), {})
    values = row(Env, "nested").bind({"args": {"number": 1}, "more": [{"word": "a"}]})[1]
    assert values == {"args": Env.Inner(number=1), "more": [Args(word="a")]}


def test_a_method_named_like_a_type_does_not_hide_the_type() -> None:
    class Env(Environment):
        @tool
        def list(self, names: list[str]) -> str:
            return ""

        @tool
        def str(self) -> Any:
            return ""

    assert row(Env, "list").bind({"names": ["a"]}) == ((), {"names": ["a"]})


def test_a_toolset_of_a_function_is_resolved_too() -> None:
    class Args(BaseModel):
        word: str

    class Shell(Toolset):
        @tool
        def act(self, args: Args) -> str:
            return ""

    assert row(Shell).bind({"word": "a"}) == ((Args(word="a"),), {})


class Never(Served):
    @tool
    def act(self, amount: Decimal) -> str:
        return ""


def test_a_name_that_is_never_defined_is_reported_when_hosted() -> None:
    with pytest.raises(LoadError, match=r"'act' of Never .*Decimal.*TYPE_CHECKING"):
        host(Never)


def test_a_return_annotation_is_not_needed_to_resolve() -> None:
    class Env(Environment):
        @tool
        def act(self, text: str) -> Decimal:
            raise NotImplementedError

    assert row(Env).bind({"text": "a"}) == ((), {"text": "a"})
