"""Marks on methods, and the table they are read into."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from orsay import Environment, ToolOutput, Toolset, terminal, tool
from orsay.authoring.tool_table import new_toolset, tool_table, toolset_table
from orsay.authoring.tools import listing
from orsay.errors import ToolDefinitionError
from pydantic import BaseModel


class Words(Toolset):
    @tool
    def count(self, text: str) -> str:
        return str(len(text.split()))

    @tool(shared=False)
    def secret(self) -> str:
        return ""


class More(Toolset):
    @tool
    def count(self, text: str) -> str:
        return ""

    @tool
    def shout(self, text: str) -> str:
        return text.upper()


class Env(Environment):
    toolsets = (Words, More)

    @tool
    def zebra(self) -> str:
        return ""

    @tool(shared=False)
    def hidden(self) -> str:
        return ""

    @tool(time_limit_s=3, detached=True)
    async def ant(self) -> str:
        return ""

    @terminal
    @tool
    def answer(self, text: str) -> str:
        """Answer."""
        return text


def test_tools_are_listed_alphabetically_class_first_then_each_toolset() -> None:
    found = listing(tool_table(Env, Env.toolsets))
    assert [spec.name for spec in found.tools] == ["ant", "zebra", "count", "count", "shout"]


def test_hidden_and_terminal_tools_are_not_listed_but_can_be_called() -> None:
    table = tool_table(Env, Env.toolsets)
    assert {"hidden", "answer", "secret"} <= table.keys()
    assert not {"hidden", "answer", "secret"} & {row.name for row in table.listed}


def test_of_two_toolsets_with_one_name_the_first_is_called() -> None:
    assert tool_table(Env, Env.toolsets)["count"].owner is Words


def test_flags_arrive_in_the_row() -> None:
    table = tool_table(Env, Env.toolsets)
    ant = table["ant"]
    assert (ant.time_limit_s, ant.detached, ant.is_async) == (3, True, True)
    zebra = table["zebra"]
    assert (zebra.shared, zebra.concurrent, zebra.exclusive, zebra.terminal, zebra.is_async) == (
        True,
        False,
        False,
        False,
        False,
    )


def test_the_terminal_tool_is_exclusive_and_described() -> None:
    table = tool_table(Env, Env.toolsets)
    assert table.terminal is table["answer"]
    assert table["answer"].exclusive
    spec = listing(table).terminal_tool
    assert spec is not None
    assert (spec.name, spec.arg, spec.description) == ("answer", "text", "Answer.")


def test_exclusive_wins_over_concurrent() -> None:
    class Both(Environment):
        @tool(concurrent=True, exclusive=True)
        def act(self) -> str:
            return ""

    row = tool_table(Both)["act"]
    assert (row.concurrent, row.exclusive) == (False, True)


def test_a_terminal_tool_may_take_nothing_and_marks_come_in_either_order() -> None:
    class Quiet(Environment):
        @tool
        @terminal
        def done(self) -> str:
            return ""

    spec = listing(tool_table(Quiet)).terminal_tool
    assert spec is not None
    assert spec.arg is None


def test_a_shared_name_in_class_and_toolset_is_refused() -> None:
    class Clash(Environment):
        toolsets = (Words,)

        @tool
        def count(self) -> str:
            return ""

    with pytest.raises(ToolDefinitionError, match=r"'count'.*Clash.*Words.*rename"):
        tool_table(Clash, Clash.toolsets)


def test_a_hidden_name_in_class_and_toolset_is_marked_as_a_collision() -> None:
    class Clash(Environment):
        toolsets = (Words,)

        @tool(shared=False)
        def count(self) -> str:
            return ""

    table = tool_table(Clash, Clash.toolsets)
    assert table["count"].collision
    assert not tool_table(Env, Env.toolsets)["count"].collision


def test_two_terminal_tools_are_refused_in_a_class_and_over_its_toolsets() -> None:
    with pytest.raises(TypeError, match=r"Two has 2 @terminal tools \(one, two\)"):

        class Two(Environment):
            @terminal
            @tool
            def one(self) -> str:
                return ""

            @terminal
            @tool
            def two(self) -> str:
                return ""

    class Ending(Toolset):
        @terminal
        @tool
        def finish(self) -> str:
            return ""

    class One(Environment):
        toolsets = (Ending,)

        @terminal
        @tool
        def one(self) -> str:
            return ""

    with pytest.raises(ToolDefinitionError, match="one, finish"):
        tool_table(One, One.toolsets)


def test_a_terminal_tool_takes_one_argument_at_most() -> None:
    with pytest.raises(
        TypeError, match=r"'answer' of Wide is @terminal and takes 2 arguments \(text, more\)"
    ):

        class Wide(Environment):
            @terminal
            @tool
            def answer(self, text: str, more: str) -> str:
                return ""

    class Pair(BaseModel):
        left: str
        right: str

    with pytest.raises(TypeError, match="left, right"):

        class Model(Environment):
            @terminal
            @tool
            def answer(self, pair: Pair) -> str:
                return ""


def test_a_terminal_tool_is_not_concurrent() -> None:
    with pytest.raises(TypeError, match=r"'answer' of Fast .*concurrent=True"):

        class Fast(Environment):
            @terminal
            @tool(concurrent=True)
            def answer(self) -> str:
                return ""


def test_terminal_without_tool_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'answer' of Bare is marked @terminal but not @tool"):

        class Bare(Environment):
            @terminal
            def answer(self) -> str:
                return ""


def test_a_broken_toolset_is_refused_when_defined() -> None:
    with pytest.raises(TypeError, match="'act' of Broken"):

        class Broken(Toolset):
            @tool
            def act(self, text) -> str:  # type: ignore[no-untyped-def]  # that is the mistake
                return ""


@pytest.mark.parametrize("result", [None, "None", int, "float", bool, dict])
def test_a_result_that_no_model_can_be_shown_is_refused_when_defined(result: Any) -> None:
    def act(self: Any) -> Any: ...

    act.__annotations__["return"] = result
    with pytest.raises(TypeError, match=r"'act' of Env returns \w+, which a model cannot be shown"):
        type("Env", (Environment,), {"act": tool(act)})


def test_a_tool_that_yields_is_refused_when_defined() -> None:
    def yields(self: Any) -> Any:
        yield ""

    async def later(self: Any) -> Any:
        yield ""

    for act in (yields, later):
        with pytest.raises(TypeError, match="'act' of Env yields"):
            type("Env", (Environment,), {"act": tool(act)})


def test_marks_go_on_methods_only() -> None:
    marks: list[Callable[[Any], Any]] = [tool, terminal, tool(shared=False)]
    for mark in marks:
        with pytest.raises(TypeError, match="goes on a method"):
            mark(property(lambda self: ""))
    with pytest.raises(TypeError, match="time_limit_s=0"):
        tool(time_limit_s=0)


def test_static_and_class_methods_are_called_with_the_instance_first() -> None:
    class Odd(Environment):
        @tool
        @staticmethod
        def plain(text: str) -> str:
            return text

        @staticmethod
        @tool
        def under(text: str) -> str:
            return text

        @tool
        @classmethod
        def named(cls, text: str) -> str:
            return cls.__name__ + text

    table, instance = tool_table(Odd), Odd()
    assert table["plain"].function(instance, text="a") == "a"
    assert table["under"].function(instance, text="a") == "a"
    assert table["named"].function(instance, text="a") == "Odda"


def test_a_parameter_of_a_static_or_class_method_may_be_called_owner() -> None:
    class Deeds(Environment):
        @tool
        @staticmethod
        def plain(owner: str) -> str:
            return owner

        @tool
        @classmethod
        def named(cls, owner: str) -> str:
            return cls.__name__ + owner

    table, instance = tool_table(Deeds), Deeds()
    assert table["plain"].function(instance, owner="a") == "a"
    assert table["named"].function(instance, owner="a") == "Deedsa"


def test_a_wrapped_tool_keeps_its_signature() -> None:
    def twice(function: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> str:
            return function(*args, **kwargs) * 2

        return wrapper

    class Wrapped(Environment):
        @twice
        @tool
        def act(self, text: str) -> str:
            return text

        @tool
        @functools.lru_cache  # noqa: B019
        def kept(self, text: str) -> str:
            return text

    table = tool_table(Wrapped)
    assert table["act"].bind({"text": "a"}) == ((), {"text": "a"})
    assert table["act"].function(Wrapped(), text="a") == "aa"
    assert table["kept"].function(Wrapped(), text="a") == "a"


def test_tools_are_inherited_from_bases_and_mixins_and_an_unmarked_override_removes_one() -> None:
    class Mixin:
        @tool
        def mixed(self, text: str) -> str:
            return text

    class Base(Mixin, Environment):
        @tool
        def act(self) -> str:
            return ""

        @tool
        def gone(self) -> str:
            return ""

    class Child(Base):
        @tool
        def act(self) -> str:
            """The child's."""
            return "child"

        def gone(self) -> str:
            return ""

    table = tool_table(Child)
    assert sorted(table) == ["act", "mixed"]
    assert table["act"].description == "The child's."
    assert table["act"].function(Child()) == "child"


def test_attributes_that_answer_any_name_are_no_tools() -> None:
    class Answers:
        def __getattr__(self, name: str) -> Any:
            return lambda: True

    class Strange(Environment):
        thing = Answers()

        @tool
        def act(self) -> str:
            return ""

    assert list(tool_table(Strange)) == ["act"]


def test_a_toolset_is_made_with_the_environment_if_it_takes_one() -> None:
    class Plain:
        pass

    class Failing:
        def __init__(self, env: Any) -> None:
            raise TypeError("mine")

    env = Env()
    made = new_toolset(Words, env)
    assert isinstance(made, Words)
    assert made.env is env
    assert isinstance(new_toolset(Plain, env), Plain)
    with pytest.raises(TypeError, match="mine"):
        new_toolset(Failing, env)


def test_a_toolset_by_itself_has_a_table() -> None:
    table = toolset_table(Words)
    assert [row.name for row in table.listed] == ["count"]
    assert sorted(table) == ["count", "secret"]
    assert all(row.owner is Words for row in table.values())


def test_tool_output_takes_what_means_a_block() -> None:
    assert [block.text for block in ToolOutput(blocks=["a"]).blocks] == ["a"]  # type: ignore[union-attr]
