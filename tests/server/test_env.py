"""What authors derive from, used without a server."""

import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, ClassVar

import orsay
import pytest
from orsay import (
    Blocks,
    Environment,
    ListToolsOutput,
    Message,
    RunToolSuccess,
    Split,
    TextBlock,
    ToolOutput,
    Toolset,
    terminal,
    tool,
)
from orsay.authoring.environment import Splits
from pydantic import BaseModel

pytestmark = pytest.mark.process

TASKS = [{"n": 0}, {"n": 1}, {"n": 2}]


class Answer(BaseModel):
    answer: str


class Echo(Environment):
    splits: ClassVar[Splits] = {"train": TASKS, "test": TASKS[:1]}

    def prompt(self) -> str:
        return f"Say {self.task['word']}."

    @tool
    def echo(self, text: str) -> ToolOutput:
        return ToolOutput(blocks=[TextBlock(text=text)])

    @terminal
    @tool
    async def answer(self, args: Answer) -> ToolOutput:
        return ToolOutput(blocks=[TextBlock(text=args.answer)], reward=1.0, finished=True)


def test_an_instance_holds_its_task_and_secrets() -> None:
    env = Echo({"word": "a"}, {"key": "b"})
    assert env.task_spec == env.task == {"word": "a"}
    assert env.secrets == {"key": "b"}
    assert Echo().task_spec == {}


def test_a_subclass_that_skips_the_constructor_still_works() -> None:
    class Skips(Echo):
        def __init__(self, task_spec: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
            self.word = task_spec["word"]

        def prompt(self) -> str:
            return str(self.word)

    env = Skips({"word": "a"}, {})
    assert env.task_spec == {}
    assert env.get_prompt() == [TextBlock(text="a")]


def test_task_may_be_assigned() -> None:
    class Assigns(Echo):
        def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:
            super().__init__(task_spec, secrets)
            self.task = Answer(answer="a")

    env = Assigns({"word": "a"})
    assert env.task == Answer(answer="a")
    assert env.task_spec == {"word": "a"}


def test_an_instance_is_small() -> None:
    spec: dict[str, Any] = {}
    secrets: dict[str, str] = {}
    Echo(spec, secrets)
    tracemalloc.start()
    try:
        kept = [Echo(spec, secrets) for _ in range(1000)]
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / len(kept) < 300


def test_a_string_prompt_is_one_text_block_and_one_user_message() -> None:
    env = Echo({"word": "a"})
    assert env.get_prompt() == [TextBlock(text="Say a.")]
    assert env.get_messages() == [Message(role="user", blocks=[TextBlock(text="Say a.")])]


def test_a_prompt_of_messages_is_served_as_messages_and_flattened() -> None:
    conversation = [Message(role="system", blocks=[TextBlock(text="s")])]

    class Talk(Environment):
        def prompt(self) -> Sequence[Message]:
            return conversation

    assert Talk().get_messages() == conversation
    assert Talk().get_prompt() == [TextBlock(text="[system]", detail={"role": "system"}), TextBlock(text="s")]


async def test_an_async_prompt_is_awaited() -> None:
    class Slow(Environment):
        async def prompt(self) -> str:
            return "a"

    prompt, messages = Slow().get_prompt(), Slow().get_messages()
    assert isinstance(prompt, Awaitable)
    assert isinstance(messages, Awaitable)
    assert await prompt == [TextBlock(text="a")]
    assert await messages == [Message(role="user", blocks=[TextBlock(text="a")])]


async def test_blocks_and_messages_replace_each_other() -> None:
    class InBlocks(Environment):
        async def get_prompt(self) -> Blocks:
            return [TextBlock(text="a")]

    class InMessages(Environment):
        def get_messages(self) -> Sequence[Message]:
            return [Message(role="user", blocks=[TextBlock(text="a")])]

    messages = InBlocks().get_messages()
    assert isinstance(messages, Awaitable)
    assert await messages == InMessages().get_messages()
    assert InMessages().get_prompt() == [TextBlock(text="a")]


def test_without_a_prompt_the_error_says_what_to_implement() -> None:
    class Mute(Environment):
        pass

    with pytest.raises(NotImplementedError, match=r"Mute has no prompt: implement prompt\(\)"):
        Mute().get_prompt()
    with pytest.raises(NotImplementedError, match="Mute"):
        Mute().get_messages()


async def test_declared_splits_give_names_counts_and_tasks() -> None:
    assert Echo.list_splits() == ["train", "test"]
    assert Echo.list_tasks("train") == TASKS
    assert await Echo.num_tasks("train") == 3
    assert await Echo.get_task("train", -1) == {"n": 2}
    assert await Echo.get_task_range("train", 1) == TASKS[1:]
    assert await Echo.get_task_range("train", -2, None) == TASKS[1:]
    assert await Echo.get_task_range("train", 2, 1) == []
    with pytest.raises(IndexError):
        await Echo.get_task("train", 3)


async def test_split_names_alone_leave_the_tasks_to_methods() -> None:
    class Named(Environment):
        splits: ClassVar[Splits] = ["train", Split(name="hard", type="test")]

        @classmethod
        async def list_tasks(cls, split: str) -> list[dict[str, str]]:
            return [{"split": split}]

    assert Named.list_splits() == ["train", Split(name="hard", type="test")]
    assert await Named.num_tasks("hard") == 1
    assert await Named.get_task("hard", 0) == {"split": "hard"}

    class Nothing(Environment):
        splits: ClassVar[Splits] = ["train"]

    with pytest.raises(NotImplementedError, match="no list of tasks"):
        Nothing.list_tasks("train")


def test_the_class_lists_its_tools() -> None:
    listed = Echo.list_tools()
    assert [spec.name for spec in listed.tools] == ["echo"]
    assert listed.supports_score_group is False
    assert listed.message_block_types == orsay.SUPPORTED_MESSAGE_BLOCK_TYPES
    assert Echo.is_assistant_message_final()
    assert Echo.terminal_tool() == listed.terminal_tool
    assert Echo().list_task_tools() == ListToolsOutput(tools=[])
    assert Echo.name() == "Echo"


async def test_the_terminal_tool_can_be_called_directly() -> None:
    result = await Echo().call_terminal_tool("hello")
    assert isinstance(result.root, RunToolSuccess)
    assert result.root.output.blocks == [TextBlock(text="hello")]

    class Bare(Environment):
        pass

    with pytest.raises(ValueError, match="Bare has no @terminal tool"):
        await Bare().call_terminal_tool()


async def test_a_terminal_tool_of_a_toolset_can_be_called_directly() -> None:
    class Ending(Toolset):
        @terminal
        @tool
        def finish(self) -> str:
            return str(self.env.task["word"])

    class Ends(Echo):
        toolsets = (Ending,)
        answer = None  # type: ignore[assignment]  # the inherited terminal tool is not wanted

    result = await Ends({"word": "a"}).call_terminal_tool("ignored")
    assert isinstance(result.root, RunToolSuccess)
    assert result.root.output.blocks == [TextBlock(text="a")]


def test_a_toolset_reads_the_sandbox_of_its_environment() -> None:
    class Shell(Toolset):
        pass

    class Boxed(Echo):
        sandbox = "box"  # type: ignore[assignment]

    assert Shell(Boxed()).sandbox == "box"
    assert Shell(Boxed(), sandbox_attr="task_spec").sandbox == {}
    bare = Shell(Echo())
    with pytest.raises(ValueError, match=r"Shell needs a sandbox.*env\.sandbox"):
        _ = bare.sandbox
    with pytest.raises(AttributeError, match="other"):
        _ = bare.other  # type: ignore[attr-defined]
    assert Shell.name() == "Shell"


def test_importing_the_package_loads_no_server_and_no_client() -> None:
    code = (
        "import sys, orsay, orsay.authoring.hosted, orsay.runtimes.loader;"
        "loaded = {name.partition('.')[0] for name in sys.modules};"
        "heavy = {'fastapi', 'starlette', 'uvicorn', 'httpx', 'structlog', 'numpy', 'PIL'};"
        "heavy |= {'openreward', 'ors'};"
        "assert not heavy & loaded, heavy & loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nope"):
        _ = orsay.nope


@pytest.mark.parametrize("name", ["name", "setup", "prompt", "task_spec_free", "list_tools"])
def test_a_tool_cannot_take_the_name_of_a_method_of_every_environment(name: str) -> None:
    def body(self: Environment) -> str:
        """Do it."""
        return "done"

    body.__name__ = name
    body.__annotations__ = {"return": str}
    if name == "task_spec_free":
        type("Colours", (Environment,), {name: tool(body)})
        return
    with pytest.raises(TypeError, match=f"tool '{name}' of Colours has the name of a method"):
        type("Colours", (Environment,), {name: tool(body)})
