"""The short and the full spelling of a tool's parameters."""

import enum
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal, Optional

import pytest
from orsay import Environment, ToolOutput, tool
from orsay.authoring.tool_table import read_tools
from orsay.authoring.tools import ToolRow
from orsay.errors import ToolDefinitionError
from pydantic import BaseModel, Field, ValidationError


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Point(BaseModel):
    x: int
    y: int = 0


class Move(BaseModel):
    """Where to go."""

    to: Point
    speed: float = 1.0


def row(cls: type, name: str = "act") -> ToolRow:
    return {row.name: row for row in read_tools(cls, owner=None)}[name]


def properties(cls: type) -> dict[str, Any]:
    schema = row(cls).input_schema
    assert schema is not None
    found: dict[str, Any] = schema["properties"]
    return found


def test_plain_types_become_their_json_types() -> None:
    class Env(Environment):
        @tool
        def act(
            self, text: str, count: int, part: float, sure: bool, names: list[str], table: dict[str, int]
        ) -> str:
            return text

    found = {name: schema["type"] for name, schema in properties(Env).items()}
    assert found == {
        "text": "string",
        "count": "integer",
        "part": "number",
        "sure": "boolean",
        "names": "array",
        "table": "object",
    }
    assert row(Env).input_schema is not None
    assert row(Env).input_schema["required"] == list(found)  # type: ignore[index]


def test_choices_are_an_enumeration_and_arrive_as_the_annotation_says() -> None:
    class Env(Environment):
        @tool
        def act(self, way: Literal["up", "down"], colour: Colour) -> str:
            return way

    assert properties(Env)["way"]["enum"] == ["up", "down"]
    assert row(Env).bind({"way": "up", "colour": "red"}) == ((), {"way": "up", "colour": Colour.RED})
    with pytest.raises(ValidationError, match="way"):
        row(Env).bind({"way": "left", "colour": "red"})


def test_defaults_may_be_left_out() -> None:
    class Env(Environment):
        @tool
        def act(self, text: str, count: int = 3, note: str | None = None, other: Optional[int] = 1) -> str:  # noqa: UP045
            return text

    assert row(Env).bind({"text": "a"})[1] == {"text": "a", "count": 3, "note": None, "other": 1}
    assert properties(Env)["count"]["default"] == 3


def test_a_mutable_default_is_not_shared_between_calls() -> None:
    class Env(Environment):
        @tool
        def act(self, names: list[str] = []) -> str:  # noqa: B006
            return ""

    row(Env).bind({})[1]["names"].append("x")
    assert row(Env).bind({})[1]["names"] == []


def test_nested_models_arrive_as_models() -> None:
    class Env(Environment):
        @tool
        def act(self, points: list[Point], start: Point | None = None) -> str:
            return ""

    values = row(Env).bind({"points": [{"x": 1}], "start": {"x": 2, "y": 3}})[1]
    assert values == {"points": [Point(x=1)], "start": Point(x=2, y=3)}


def test_text_is_turned_into_what_json_has_no_form_for() -> None:
    class Env(Environment):
        @tool
        def act(self, day: date, pair: tuple[int, str]) -> str:
            return ""

    assert row(Env).bind({"day": "2026-01-02", "pair": [1, "a"]})[1] == {
        "day": date(2026, 1, 2),
        "pair": (1, "a"),
    }


def test_field_gives_bounds_descriptions_aliases_and_defaults() -> None:
    class Env(Environment):
        @tool
        def act(
            self,
            count: Annotated[int, Field(ge=1, le=5, description="how many")],
            source: Annotated[str, Field(alias="from")],
            size: Annotated[int, Field(default=7)],
            old: int = Field(2, description="the other spelling"),
        ) -> str:
            """Act.

            Args:
                count: overruled by Field
                source: where from
            """
            return ""

    found = properties(Env)
    assert found["count"] == {
        "description": "how many",
        "maximum": 5,
        "minimum": 1,
        "title": "Count",
        "type": "integer",
    }
    assert found["from"]["description"] == "where from"
    assert found["old"]["description"] == "the other spelling"
    assert row(Env).bind({"count": 1, "from": "x"})[1] == {"count": 1, "source": "x", "size": 7, "old": 2}
    with pytest.raises(ValidationError):
        row(Env).bind({"count": 9, "from": "x"})


def test_names_that_pydantic_keeps_for_itself_are_fine_as_parameters() -> None:
    class Env(Environment):
        @tool
        def act(self, copy: str, schema: str, model_name: str, _hidden: int = 1, json: int = Field(2)) -> str:
            return ""

    assert list(properties(Env)) == ["copy", "schema", "model_name", "_hidden", "json"]
    values = row(Env).bind({"copy": "a", "schema": "b", "model_name": "c"})[1]
    assert values == {"copy": "a", "schema": "b", "model_name": "c", "_hidden": 1, "json": 2}
    with pytest.raises(ValidationError) as caught:
        row(Env).bind({"copy": 1, "schema": "b", "model_name": "c"})
    assert caught.value.errors()[0]["loc"] == ("copy",)


def test_an_unknown_argument_is_refused() -> None:
    class Env(Environment):
        @tool
        def act(self, text: str) -> str:
            return ""

    with pytest.raises(ValidationError, match="txet"):
        row(Env).bind({"text": "a", "txet": "b"})


def test_keyword_only_parameters_are_taken() -> None:
    class Env(Environment):
        @tool
        def act(self, *, text: str) -> str:
            return text

        @tool
        def other(self, *, move: Move) -> str:
            return ""

    assert row(Env).bind({"text": "a"}) == ((), {"text": "a"})
    assert row(Env, "other").bind({"to": {"x": 1}}) == ((), {"move": Move(to=Point(x=1))})


def test_one_model_is_the_input_as_a_whole() -> None:
    class Env(Environment):
        @tool
        def act(self, move: Move) -> ToolOutput:
            """Go.

            Args:
                move: stays in the description, as in the packages this spelling comes from
            """
            return ToolOutput(blocks=[])

    assert row(Env).input_schema == Move.model_json_schema()
    assert row(Env).bind({"to": {"x": 1}}) == ((Move(to=Point(x=1)),), {})
    assert row(Env).description == (Env.act.__doc__ or "").strip()


def test_one_annotated_model_is_one_argument() -> None:
    class Env(Environment):
        @tool
        def act(self, move: Annotated[Move, Field(description="the move")]) -> str:
            return ""

    assert list(properties(Env)) == ["move"]
    assert row(Env).bind({"move": {"to": {"x": 1}}}) == ((), {"move": Move(to=Point(x=1))})


def test_a_tool_without_parameters_has_no_schema_and_ignores_its_input() -> None:
    class Env(Environment):
        @tool
        def act(self) -> str:
            return ""

    assert row(Env).input_schema is None
    assert row(Env).bind({"anything": 1}) == ((), {})


GOOGLE = """Submit a string.

It is compared letter by letter.

Args:
    text (str): The string
        to submit.
    count: How often.

Returns:
    What happened.

Raises:
    ValueError: never
"""
NUMPY = """Submit a string.

It is compared letter by letter.

Parameters
----------
text : str
    The string
    to submit.
count : int
    How often.

Returns
-------
str
    What happened.
"""
REST = """Submit a string.

It is compared letter by letter.

:param text: The string
    to submit.
:param int count: How often.
:returns: What happened.
:raises ValueError: never
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_docstrings_of_any_style_describe_tool_and_parameters(docstring: str) -> None:
    def act(self: Any, text: str, count: int) -> str:
        return ""

    act.__doc__ = docstring
    cls = type("Env", (Environment,), {"act": tool(act)})
    assert row(cls).description == "Submit a string.\n\nIt is compared letter by letter."
    described = {name: " ".join(schema["description"].split()) for name, schema in properties(cls).items()}
    assert described == {"text": "The string to submit.", "count": "How often."}


def test_a_docstring_without_sections_is_the_description_as_it_is() -> None:
    class Env(Environment):
        @tool
        def act(self, text: str) -> str:
            """Submit: a string.

            Note:
                - first: one
                - second: two
            """
            return ""

    assert row(Env).description == "Submit: a string.\n\nNote:\n    - first: one\n    - second: two"


def test_an_example_in_a_docstring_stays_in_the_description() -> None:
    class Env(Environment):
        @tool
        def act(self, text: str) -> str:
            """Submit a string.

            Args:
                text: The string.

            Example:
                act("hello")
            """
            return ""

    assert 'act("hello")' in row(Env).description
    assert "The string." not in row(Env).description


def test_a_model_of_an_enclosing_function_is_found() -> None:
    class Args(BaseModel):
        word: str

    class Env(Environment):
        class Inner(BaseModel):
            number: int

        @tool
        def act(self, args: Args) -> str:
            return ""

        @tool
        def other(self, args: Inner) -> str:
            return ""

    assert row(Env).bind({"word": "a"}) == ((Args(word="a"),), {})
    assert row(Env, "other").bind({"number": 1}) == ((Env.Inner(number=1),), {})


def broken(body: dict[str, Any]) -> str:
    with pytest.raises(TypeError) as caught:
        type("Broken", (Environment,), body)
    assert isinstance(caught.value, ToolDefinitionError)
    text = str(caught.value)
    assert "'act'" in text
    assert "Broken" in text
    return text


def test_parameters_that_have_no_schema_are_refused_when_the_class_is_defined() -> None:
    def stars(self: Any, *words: str) -> str:
        return ""

    def keywords(self: Any, **words: str) -> str:
        return ""

    def bare(self: Any, text) -> str:  # type: ignore[no-untyped-def]  # that is the mistake
        return ""

    def position(self: Any, text: str, /) -> str:
        return ""

    def selfless() -> str:
        return ""

    assert "*words" in broken({"act": tool(stars)})
    assert "**words" in broken({"act": tool(keywords)})
    assert "text: str" in broken({"act": tool(bare)})
    assert "'/'" in broken({"act": tool(position)})
    assert "self" in broken({"act": tool(selfless)})


def test_annotations_that_have_no_json_form_are_refused() -> None:
    class Thing:
        pass

    def thing(self: Any, thing: Thing) -> str:
        return ""

    def call(self: Any, call: Callable[[], int], other: int) -> str:
        return ""

    assert "JSON" in broken({"act": tool(thing)})
    assert "JSON" in broken({"act": tool(call)})


def test_a_default_that_does_not_fit_is_refused() -> None:
    def wrong(self: Any, count: int = "five") -> str:  # type: ignore[assignment]  # that is the mistake
        return ""

    def none(self: Any, count: int = None) -> str:  # type: ignore[assignment]  # noqa: RUF013  # the mistake
        return ""

    assert "'five'" in broken({"act": tool(wrong)})
    assert "| None" in broken({"act": tool(none)})
