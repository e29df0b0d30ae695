"""One class, read once and checked."""

import asyncio
import json
import sys
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
from orsay import (
    Blocks,
    Environment,
    GroupCandidate,
    GroupScore,
    ListToolsOutput,
    Message,
    Split,
    TextBlock,
    ToolOutput,
    Toolset,
    ToolSpec,
    terminal,
    tool,
)
from orsay.authoring.environment import Splits
from orsay.authoring.hosted import (
    builtin_toolset,
    host,
    session_listing,
    session_toolset_table,
    to_candidates,
)
from orsay.errors import BadTask, LoadError
from orsay.runtimes.base import settle
from orsay.runtimes.execution.episode import Episode, ExecutionContext, Limits
from orsay.runtimes.execution.runs import Runs
from orsay.runtimes.execution.threads import Threads
from orsay.tracing import NOWHERE


class Echo(Environment):
    """Repeat the word.

    And win.
    """

    splits: ClassVar[Splits] = {"train": [{"word": "a"}], "hard": [], "test": []}

    def prompt(self) -> str:
        return ""

    @tool
    def echo(self, text: str) -> ToolOutput:
        return ToolOutput(blocks=[TextBlock(text=text)])


def test_a_class_is_read_into_a_record() -> None:
    hosted = host(Echo)
    assert (hosted.cls, hosted.name, hosted.key) == (Echo, "Echo", "echo")
    assert hosted.description == "Repeat the word.\n\nAnd win."
    assert hosted.splits == (
        Split(name="train", type="train"),
        Split(name="hard", type="validation"),
        Split(name="test", type="test"),
    )
    assert [spec.name for spec in hosted.listing.tools] == ["echo"]
    assert hosted.listing.supports_score_group is False
    assert hosted.plain_constructor
    assert hosted.plain_setup
    assert hosted.plain_teardown
    assert hosted.plain_task_tools
    assert hosted.call_time_limit_s is None


def test_what_a_class_overrides_is_known() -> None:
    class Full(Echo):
        call_time_limit_s: ClassVar[float | None] = 5
        setup_time_limit_s: ClassVar[float | None] = 6.5

        def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:
            super().__init__(task_spec, secrets)

        async def setup(self) -> None: ...

        def teardown(self) -> None: ...

        def list_task_tools(self) -> ListToolsOutput:
            return ListToolsOutput(tools=[])

        def score_group(self, candidates: Sequence[GroupCandidate]) -> Sequence[GroupScore | float]:
            return [0.0 for _ in candidates]

        @classmethod
        def name(cls) -> str:
            return "Other-Name"

    hosted = host(Full)
    assert (hosted.name, hosted.key) == ("Other-Name", "other-name")
    assert (hosted.call_time_limit_s, hosted.setup_time_limit_s) == (5.0, 6.5)
    assert hosted.supports_score_group
    assert hosted.listing.supports_score_group
    assert not (
        hosted.plain_constructor or hosted.plain_setup or hosted.plain_teardown or hosted.plain_task_tools
    )
    assert hosted.description == ""


class Thread(Environment):
    """The prompt says whether it was made on the thread of the event loop."""

    splits = Echo.splits
    echo = Echo.echo

    async def prompt(self) -> str:
        return str(threading.current_thread() is threading.main_thread())


class Messages(Environment):
    splits = Echo.splits
    echo = Echo.echo

    async def get_messages(self) -> list[Message]:
        return []


class Own(Thread):
    def get_prompt(self) -> Blocks:
        return [TextBlock(text=str(threading.current_thread() is threading.main_thread()))]


@pytest.mark.parametrize(
    ("cls", "hooks"),
    [
        (Echo, ()),
        (Thread, ("get_prompt", "get_messages")),
        (Messages, ("get_prompt",)),
        (Own, ("get_messages",)),
    ],
)
def test_hooks_that_only_await_are_known(cls: type[Environment], hooks: Sequence[str]) -> None:
    assert host(cls).waiting_hooks == set(hooks)


@pytest.mark.parametrize(("cls", "on_loop"), [(Thread, "True"), (Own, "False")])
async def test_only_code_that_may_block_gets_a_thread(cls: type[Environment], on_loop: str) -> None:
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    limits = Limits(
        call_time_limit_s=5, setup_time_limit_s=5, teardown_time_limit_s=5, max_result_bytes=10_000
    )
    context = ExecutionContext(Threads(2), Runs(), limits)
    try:
        episode = await Episode.open(host(cls), context, NOWHERE, task_spec={}, secrets={})
        episode.start("prompt", b"", settle(answer), None)
        assert json.loads(await answer)[0]["text"] == on_loop
    finally:
        context.runs.close()
        context.threads.close()


def test_an_instance_is_made_with_task_and_secrets() -> None:
    instance = host(Echo).construct({"word": "a"}, {"key": "b"})
    assert isinstance(instance, Echo)
    assert (instance.task_spec, instance.secrets) == ({"word": "a"}, {"key": "b"})


def test_a_constructor_need_not_take_secrets() -> None:
    class Bare(Echo):
        def __init__(self, task_spec: Mapping[str, Any]) -> None:
            super().__init__(task_spec)

    class Loose(Echo):
        def __init__(self, **everything: Any) -> None:
            super().__init__(**everything)

    instance = host(Bare).construct({"word": "a"}, {"key": "b"})
    assert isinstance(instance, Bare)
    assert instance.secrets == {}
    loose = host(Loose).construct({"word": "a"}, {"key": "b"})
    assert isinstance(loose, Loose)
    assert loose.secrets == {"key": "b"}


def refused(cls: Any, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        host(cls)


def test_what_is_no_environment_is_refused() -> None:
    refused(Echo(), "not a class")
    refused(dict, "dict is not an environment; derive it from")
    refused(Environment, "Environment is not an environment")


def test_an_abstract_class_is_refused() -> None:
    class Half(Echo):
        @abstractmethod
        def judge(self) -> float: ...

    refused(Half, "Half is abstract; implement judge")


def test_a_class_without_tools_is_refused() -> None:
    class Idle(Environment):
        splits: ClassVar[Splits] = {"train": []}

        def prompt(self) -> str:
            return ""

    refused(Idle, "Idle has no tools; put @tool")


def test_a_class_whose_only_tool_is_terminal_is_hosted() -> None:
    class Ends(Environment):
        splits: ClassVar[Splits] = {"train": []}

        def prompt(self) -> str:
            return ""

        @terminal
        @tool
        def answer(self, text: str) -> str:
            return text

    hosted = host(Ends)
    assert hosted.listing.tools == []
    assert hosted.tools.terminal is hosted.tools["answer"]


def test_a_class_without_splits_or_tasks_is_refused() -> None:
    class NoSplits(Echo):
        splits: ClassVar[Splits] = {}

    class NoTasks(Echo):
        splits: ClassVar[Splits] = ["train"]

    class OneMissing(Echo):
        @classmethod
        def list_splits(cls) -> list[str | Split]:
            return ["train", "other"]

    class Wrong(Echo):
        splits: ClassVar[Any] = {"train": 5}

    class Twice(Echo):
        splits: ClassVar[Splits] = ["train", Split(name="train", type="test")]

    class Odd(Echo):
        splits: ClassVar[Any] = [3]

    class Text(Echo):
        @classmethod
        def list_splits(cls) -> Any:
            return "train"

    class Raises(Echo):
        @classmethod
        def list_splits(cls) -> Any:
            raise OSError("disk")

    class Async(Echo):
        @classmethod
        async def list_splits(cls) -> Any:  # type: ignore[override]  # that is the mistake
            return ["train"]

    refused(NoSplits, r"NoSplits has no splits; write for example splits = \{")
    refused(NoTasks, "NoTasks has no tasks for split 'train'; give splits as a mapping")
    refused(OneMissing, "no tasks for split 'other'")
    refused(Wrong, "must be a sequence of dicts .* found int")
    refused(Twice, "Twice names a split twice: train, train")
    refused(Odd, "neither a name nor a Split: 3")
    refused(Text, "must return a list; it returned 'train'")
    refused(Raises, r"list_splits\(\) raised OSError: disk")
    refused(Async, "must return a list")


def test_a_class_without_a_prompt_is_refused() -> None:
    class Mute(Environment):
        splits: ClassVar[Splits] = {"train": []}

        @tool
        def act(self) -> str:
            return ""

    class Text(Mute):
        prompt: Any = "Say hello."

    refused(Mute, "Mute has no prompt; implement prompt or get_prompt or get_messages")
    refused(Text, "Text.prompt must be a method")


def test_names_limits_and_toolsets_are_checked() -> None:
    class Nameless(Echo):
        @classmethod
        def name(cls) -> str:
            return ""

    class Slash(Echo):
        @classmethod
        def name(cls) -> str:
            return "a/b"

    class Raises(Echo):
        @classmethod
        def name(cls) -> str:
            raise OSError("disk")

    class Limit(Echo):
        call_time_limit_s: ClassVar[float | None] = 0

    class Sets(Echo):
        toolsets: ClassVar[Any] = [3]

    class Constructor(Echo):
        def __init__(self, task: Any, keys: Any) -> None: ...

    refused(Nameless, "must return a name")
    refused(Slash, "'a/b'")
    refused(Raises, r"name\(\) raised OSError")
    refused(Limit, "call_time_limit_s must be a number of seconds over 0; found 0")
    refused(Sets, "toolsets must hold classes; found 3")
    refused(Constructor, r"must take task_spec and secrets .*\(task: Any, keys: Any\)")


def test_a_shared_name_collision_is_refused() -> None:
    class Words(Toolset):
        @tool
        def echo(self) -> str:
            return ""

    class Clash(Echo):
        toolsets = (Words,)

    refused(Clash, "'echo' is defined in Clash and in its toolset Words")


def test_a_listing_of_its_own_is_served() -> None:
    class Own(Echo):
        @classmethod
        def list_tools(cls) -> ListToolsOutput:
            listed = super().list_tools()
            listed.tools[0].description = "mine"
            return listed

    assert host(Own).listing.tools[0].description == "mine"


def spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description="", input_schema=None)


class Shell(Toolset):
    @tool
    def bash(self, command: str) -> str:
        return ""

    @tool
    def echo(self, words: list[str]) -> str:
        return ""

    @tool(shared=False)
    def hidden(self) -> str:
        return ""


class Ending(Shell):
    @terminal
    @tool
    def finish(self) -> str:
        return ""


class Final(Echo):
    @terminal
    @tool
    def answer(self, text: str) -> str:
        return text


def test_task_tools_follow_the_shared_ones_and_never_show_the_terminal_tool() -> None:
    hosted = host(Final)
    listed = session_listing(hosted, ListToolsOutput(tools=[spec("extra"), spec("answer"), spec("echo")]))
    assert [item.name for item in listed.tools] == ["echo", "extra", "echo"]
    assert listed.terminal_tool is not None
    assert session_listing(hosted) == hosted.listing


def test_tools_of_a_session_toolset_replace_others_of_their_name() -> None:
    listed = session_listing(host(Final), [spec("extra"), spec("bash")], Shell(Final()))
    assert [item.name for item in listed.tools] == ["extra", "bash", "echo"]
    echo = listed.tools[-1].input_schema
    assert echo is not None
    assert "words" in echo["properties"]
    assert listed.terminal_tool is not None
    assert listed.terminal_tool.name == "answer"


def test_the_terminal_tool_of_a_session_toolset_wins() -> None:
    listed = session_listing(host(Final), None, Ending(Final()))
    assert listed.terminal_tool is not None
    assert listed.terminal_tool.name == "finish"
    assert "finish" not in [item.name for item in listed.tools]


def test_a_session_toolset_has_a_table_of_what_may_be_called() -> None:
    table = session_toolset_table(Ending(Final()))
    assert sorted(table) == ["bash", "echo", "finish", "hidden"]
    assert table.terminal is table["finish"]


def test_candidates_of_our_own_classes_stay_as_they_are() -> None:
    candidates = [GroupCandidate(messages=[])]
    assert to_candidates(host(Echo), candidates) == candidates


def test_a_toolset_by_name_that_is_not_there_is_reported_with_the_words_clients_look_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openreward.toolsets", None)
    with pytest.raises(BadTask, match=r"[Tt]oolset 'codex' is not available.*sandbox"):
        builtin_toolset("codex")


def test_get_prompt_alone_is_enough() -> None:
    class Full(Environment):
        @classmethod
        def list_splits(cls) -> list[str | Split]:
            return ["train"]

        @classmethod
        def list_tasks(cls, split: str) -> list[dict[str, Any]]:
            return []

        def get_prompt(self) -> Blocks:
            return [TextBlock(text="")]

        @tool
        def act(self) -> ToolOutput:
            return ToolOutput(blocks=[])

    assert host(Full).key == "full"
