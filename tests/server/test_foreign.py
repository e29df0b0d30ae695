"""Classes written for ``openreward.environments`` and ``ors``, hosted as they are."""

# Bases and decorators are only known when the packages are there, so they have no types.
# mypy: disable-error-code="misc, untyped-decorator, no-untyped-def"

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import orsay
import pytest
from orsay.authoring.hosted import (
    HostedEnvironment,
    builtin_toolset,
    host,
    new_toolset,
    session_listing,
    session_toolset_table,
    to_blocks,
    to_candidates,
    to_messages,
    to_output,
    to_scores,
)
from orsay.errors import BadTask, InvalidIndex, ListingUnsupported, LoadError
from pydantic import BaseModel, Field

openreward = pytest.importorskip("openreward.environments", reason="needs the package openreward")
ors = pytest.importorskip("ors", reason="needs the package ors-sdk")

pytestmark = pytest.mark.conformance("C2")

both = pytest.mark.parametrize("package", [openreward, ors], ids=["openreward", "ors"])


class EchoInput(BaseModel):
    text: str = Field(description="What to say.")
    times: int = 1


class Answer(BaseModel):
    answer: str


def echo_class(package: Any) -> Any:
    """An environment as its documentation would have it, for either package."""

    class Words(package.Toolset):
        @package.tool
        async def count(self, args: EchoInput) -> package.ToolOutput:
            """Count words."""
            return package.ToolOutput(blocks=[package.TextBlock(text=str(len(args.text.split())))])

    class Echo(package.Environment):
        """Says it again."""

        toolsets = (Words,)

        def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:
            super().__init__(task_spec or {}, secrets or {})
            self.sandbox = "box"
            self.key = (secrets or {}).get("key")

        @classmethod
        def list_splits(cls) -> Any:
            return ["train", package.Split(name="hard", type="test")]

        @classmethod
        def list_tasks(cls, split: str) -> Any:
            return [{"word": split}, {"word": "b"}]

        def get_prompt(self) -> Any:
            return [package.TextBlock(text=f"Say {self.task_spec['word']}.")]

        @package.tool
        def say(self, args: EchoInput) -> package.ToolOutput:
            """
            Say it.

            Args:
                args: what to say
            """
            return package.ToolOutput(
                blocks=[
                    package.TextBlock(text=args.text, detail={"k": 1}),
                    package.ImageBlock(data="", mimeType="a/b"),
                ],
                reward=0.5,
                finished=True,
                metadata={"n": [1]},
            )

        @package.tool
        async def look(self) -> package.ToolOutput:
            return package.ToolOutput(blocks=[])

        @package.tool(shared=False)
        async def hidden(self) -> package.ToolOutput:
            return package.ToolOutput(blocks=[])

        def list_task_tools(self) -> Any:
            return package.ListToolsOutput(
                tools=[package.ToolSpec(name="hidden", description="now seen", input_schema=None)]
            )

    return Echo


@both
def test_the_listing_is_what_the_package_itself_lists(package: Any) -> None:
    cls = echo_class(package)
    theirs = cls.list_tools().model_dump()
    ours = host(cls).listing.model_dump()
    assert ours["tools"] == theirs["tools"]
    assert [tool["name"] for tool in ours["tools"]] == ["look", "say", "count"]
    for key, value in theirs.items():
        assert ours[key] == value


@both
async def test_tasks_prompt_and_calls_work(package: Any) -> None:
    hosted = host(echo_class(package))
    assert [split.model_dump() for split in hosted.splits] == [
        {"name": "train", "type": "train"},
        {"name": "hard", "type": "test"},
    ]
    assert await hosted.tasks.num_tasks("hard") == 2
    task = await hosted.tasks.get_task("hard", -2)
    assert task == {"word": "hard"}
    instance: Any = hosted.construct(dict(task), {"key": "k"})
    assert instance.key == "k"
    assert to_blocks(instance.get_prompt()) == [orsay.TextBlock(text="Say hard.")]

    row = hosted.tools["say"]
    args, kwargs = row.bind({"text": "a"})
    output = to_output(row.function(instance, *args, **kwargs), "say")
    assert output.model_dump() == {
        "blocks": [
            {"text": "a", "detail": {"k": 1}, "type": "text"},
            {"data": "", "mimeType": "a/b", "detail": None, "type": "image"},
        ],
        "metadata": {"n": [1]},
        "reward": 0.5,
        "finished": True,
    }

    count = hosted.tools["count"]
    assert count.owner is not None
    toolset: Any = new_toolset(count.owner, instance)
    assert toolset.env is instance
    args, kwargs = count.bind({"text": "a b"})
    output = to_output(await count.function(toolset, *args, **kwargs), "count")
    assert output.blocks == [orsay.TextBlock(text="2")]


@both
def test_task_tools_are_appended(package: Any) -> None:
    hosted = host(echo_class(package))
    instance: Any = hosted.construct({}, {})
    assert not hosted.plain_task_tools
    listed = session_listing(hosted, instance.list_task_tools())
    assert [tool.name for tool in listed.tools] == ["look", "say", "count", "hidden"]
    assert "hidden" in hosted.tools


@both
def test_what_a_class_overrides_is_known(package: Any) -> None:
    hosted = host(echo_class(package))
    assert not hosted.plain_constructor
    assert hosted.plain_setup
    assert hosted.plain_teardown
    assert not hosted.supports_score_group

    class Sets(echo_class(package)):
        async def setup(self) -> None: ...

        async def teardown(self) -> None: ...

    hosted = host(Sets)
    assert not hosted.plain_setup
    assert not hosted.plain_teardown


@both
def test_a_name_of_its_own_is_kept(package: Any) -> None:
    class Named(echo_class(package)):
        @classmethod
        def name(cls) -> str:
            return "My-Env"

    assert (host(Named).name, host(Named).key) == ("My-Env", "my-env")


@both
async def test_a_class_that_counts_and_gets_is_not_listed(package: Any) -> None:
    class Large(echo_class(package)):
        @classmethod
        def list_tasks(cls, split: str) -> Any:
            raise NotImplementedError

        @classmethod
        async def num_tasks(cls, split: str) -> int:
            return 10**9

        @classmethod
        async def get_task(cls, split: str, index: int) -> Any:
            if not 0 <= index < 10**9:
                raise IndexError(index)
            return {"index": index}

    tasks = host(Large).tasks
    assert await tasks.num_tasks("train") == 10**9
    assert await tasks.get_task("train", 5) == {"index": 5}
    assert await tasks.get_task_range("train", 10**9 - 1) == [{"index": 10**9 - 1}]
    with pytest.raises(InvalidIndex):
        await tasks.get_task("train", -1)
    with pytest.raises(ListingUnsupported):
        await tasks.list_tasks("train")


@both
def test_a_tool_without_a_return_annotation_is_listed_here(package: Any) -> None:
    class Sloppy(echo_class(package)):
        @package.tool
        def extra(self, text: str, times: int = 2):
            """Short spelling in another package's class."""
            return text * times

    hosted = host(Sloppy)
    assert "extra" not in [tool.name for tool in Sloppy.list_tools().tools]
    assert "extra" in [tool.name for tool in hosted.listing.tools]
    args, kwargs = hosted.tools["extra"].bind({"text": "a"})
    assert to_output(hosted.tools["extra"].function(Sloppy(), *args, **kwargs), "extra").blocks == [
        orsay.TextBlock(text="aa")
    ]


@both
def test_a_tool_that_cannot_be_one_stops_hosting_and_says_why(package: Any) -> None:
    class Broken(echo_class(package)):
        @package.tool
        def extra(self, text):
            return text

    with pytest.raises(LoadError, match=r"tool 'extra' of Broken has no annotation for parameter 'text'"):
        host(Broken)


@both
def test_an_override_that_would_not_be_called_stops_hosting(package: Any) -> None:
    class Counts(echo_class(package)):
        async def _call_tool(self, name: str, input: Any) -> Any:
            return await super()._call_tool(name, input)

    with pytest.raises(LoadError, match="Counts overrides _call_tool"):
        host(Counts)


@both
def test_checks_of_our_own_classes_hold_for_others_too(package: Any) -> None:
    class NoSplits(echo_class(package)):
        @classmethod
        def list_splits(cls) -> Any:
            return []

    with pytest.raises(LoadError, match="NoSplits has no splits"):
        host(NoSplits)
    with pytest.raises(LoadError, match="not an environment"):
        host(package.Environment)

    class Abstract(package.Environment):
        pass

    with pytest.raises(LoadError, match=r"Abstract is abstract; implement .*list_splits"):
        host(Abstract)


@both
async def test_an_environment_of_ours_takes_toolsets_and_outputs_of_another_package(package: Any) -> None:
    class Shout(package.Toolset):
        @package.tool
        def shout(self, args: EchoInput) -> package.ToolOutput:
            return package.ToolOutput(blocks=[package.TextBlock(text=args.text.upper())])

    class Mixed(orsay.Environment):
        toolsets = (Shout,)
        splits = {"train": [{}]}
        sandbox = "box"  # type: ignore[assignment]

        def prompt(self) -> Any:
            return [package.TextBlock(text="a")]

    hosted = host(Mixed)
    instance: Any = hosted.construct({}, {})
    assert instance.get_prompt() == [orsay.TextBlock(text="a")]
    row = hosted.tools["shout"]
    args, kwargs = row.bind({"text": "a"})
    output = to_output(row.function(new_toolset(Shout, instance), *args, **kwargs), "shout")
    assert output.blocks == [orsay.TextBlock(text="A")]


@pytest.mark.parametrize("package", [openreward])
def test_locking_flags_of_openreward_are_kept(package: Any) -> None:
    class Flags(echo_class(openreward)):
        @package.tool(concurrent=True)
        def fast(self) -> package.ToolOutput: ...

        @package.tool(exclusive=True)
        def submit(self) -> package.ToolOutput: ...

        @package.terminal
        @package.tool
        def answer(self, args: Answer) -> package.ToolOutput: ...

    hosted = host(Flags)
    flags = {name: (row.concurrent, row.exclusive) for name, row in hosted.tools.items()}
    assert flags["fast"] == (True, False)
    assert flags["submit"] == (False, True)
    assert flags["answer"] == (False, True)
    assert flags["look"] == (False, False)
    assert hosted.listing.terminal_tool is not None
    assert hosted.listing.model_dump() == Flags.list_tools().model_dump()


def test_tools_of_ors_overlap_when_async_and_run_alone_when_sync() -> None:
    rows = host(echo_class(ors)).tools
    assert (rows["look"].concurrent, rows["look"].exclusive) == (True, False)
    assert (rows["say"].concurrent, rows["say"].exclusive) == (False, True)


async def test_openreward_messages_prompts_and_scores_are_converted() -> None:
    seen: list[Any] = []

    class Talk(echo_class(openreward)):
        get_prompt = openreward.Environment.get_prompt

        def get_messages(self) -> Any:
            return [
                openreward.Message(role="system", blocks=[openreward.TextBlock(text="s")]),
                openreward.Message(
                    role="assistant",
                    blocks=[
                        openreward.ReasoningBlock(text="hm"),
                        openreward.ToolCallBlock(id="1", name="look", input={"a": 1}),
                    ],
                ),
                openreward.Message(
                    role="user",
                    blocks=[
                        openreward.ToolResultBlock(tool_call_id="1", blocks=[openreward.TextBlock(text="r")]),
                    ],
                ),
            ]

        async def score_group(self, candidates: Sequence[Any]) -> Any:
            seen.extend(candidates)
            return [openreward.GroupScore(reward=1.0, metadata={"k": 1}), 0.5]

    hosted = host(Talk)
    assert hosted.supports_score_group
    instance: Any = hosted.construct({"word": "a"}, {})
    messages = to_messages(instance.get_messages())
    assert [message.role for message in messages] == ["system", "assistant", "user"]
    assert messages[1].blocks[1] == orsay.ToolCallBlock(id="1", name="look", input={"a": 1})
    theirs = to_blocks(await instance.get_prompt())
    ours = to_blocks(instance.get_messages())
    assert [block.model_dump() for block in ours] == [block.model_dump() for block in theirs]

    candidate = orsay.GroupCandidate(
        messages=[orsay.Message(role="user", blocks=[orsay.TextBlock(text="a")])]
    )
    scores = to_scores(await instance.score_group(to_candidates(hosted, [candidate, candidate])), 2)
    assert scores == [orsay.GroupScore(reward=1.0, metadata={"k": 1}), orsay.GroupScore(reward=0.5)]
    assert isinstance(seen[0], openreward.GroupCandidate)
    assert isinstance(seen[0].messages[0].blocks[0], openreward.TextBlock)


async def test_openreward_messages_default_to_the_prompt() -> None:
    instance: Any = host(echo_class(openreward)).construct({"word": "a"}, {})
    messages = to_messages(await instance.get_messages())
    assert messages == [orsay.Message(role="user", blocks=[orsay.TextBlock(text="Say a.")])]


@pytest.mark.parametrize("name", ["codex", "claude-code", "backsearch", "web"])
def test_every_kind_of_toolset_by_name_is_bound(name: str) -> None:
    hosted: HostedEnvironment = host(echo_class(openreward))
    instance = hosted.construct({}, {})
    make: Callable[[Any], Any] = builtin_toolset(name)
    toolset = make(instance)
    table = session_toolset_table(toolset)
    assert table.listed
    listed = session_listing(hosted, None, toolset)
    assert [tool.name for tool in listed.tools][-len(table.listed) :] == [row.name for row in table.listed]


def test_a_toolset_that_needs_a_sandbox_says_so() -> None:
    make: Callable[[Any], Any] = builtin_toolset("codex")
    with pytest.raises(ValueError, match=r"env\.sandbox"):
        make(object())


def test_an_unknown_toolset_names_the_known_ones() -> None:
    with pytest.raises(BadTask, match=r"unknown toolset 'nope'; known toolsets: .*codex"):
        builtin_toolset("nope")


def test_every_toolset_of_openreward_lists_as_it_does_there() -> None:
    package: Any = importlib.import_module("openreward.toolsets")
    for name, cls in package.BUILTIN_TOOLSETS.items():
        instance = host(echo_class(openreward)).construct({}, {})
        table = session_toolset_table(cls(instance))

        class Env(echo_class(openreward)):
            toolsets = (cls,)

        theirs = {tool.name: tool.model_dump() for tool in Env.list_tools().tools}
        for row in table.listed:
            assert row.spec().model_dump() == theirs[row.name], name
