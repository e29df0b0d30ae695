"""The echo environment: its tasks, what its tools answer, and its scripted players."""

from typing import Any

import pytest
from echo_env.env import EchoEnvironment
from echo_env.policy import play, play_wrong
from orsay import TextBlock, ToolOutput, host


class Direct:
    """A session without a server."""

    def __init__(self, environment: EchoEnvironment) -> None:
        self.environment = environment

    async def prompt(self) -> list[TextBlock]:
        return [TextBlock(text=self.environment.prompt())]

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput:
        assert name == "echo"
        return await self.environment.echo(**input)


def text_of(output: ToolOutput) -> str:
    return "".join(block.text for block in output.blocks if isinstance(block, TextBlock))


def test_there_are_eight_training_tasks_in_a_fixed_order() -> None:
    tasks = EchoEnvironment.list_tasks("train")
    assert [task["id"] for task in tasks] == [f"echo-{number}" for number in range(8)]
    words = "hello world trl openreward spec factory dataset reward"
    assert [task["target"] for task in tasks] == words.split()


def test_the_prompt_names_the_tool_and_the_word() -> None:
    prompt = EchoEnvironment({"id": "echo-0", "target": "hello"}).prompt()
    assert "echo" in prompt
    assert "hello" in prompt


async def test_the_right_word_earns_one_and_ends_the_episode() -> None:
    output = await EchoEnvironment({"id": "echo-0", "target": "hello"}).echo("hello")
    assert (text_of(output), output.reward, output.finished) == ("match", 1.0, True)


@pytest.mark.parametrize("text", ["", "Hello", "hello ", "goodbye", "h\u0435llo", "x" * 100_000, "\ud800"])
async def test_any_other_text_earns_nothing_and_may_be_followed_by_another_try(text: str) -> None:
    environment = EchoEnvironment({"id": "echo-0", "target": "hello"})
    output = await environment.echo(text)
    assert text_of(output).startswith("no match (got ")
    assert len(text_of(output).encode()) < 2_000
    assert (output.reward, output.finished) == (0.0, False)
    assert (await environment.echo("hello")).reward == 1.0


async def test_a_task_may_set_the_reward_of_a_failure() -> None:
    environment = EchoEnvironment({"id": "echo-0", "target": "hello", "failure_reward": -0.5})
    assert (await environment.echo("no")).reward == -0.5


@pytest.mark.parametrize("task", [{}, {"target": None}, {"target": 3}])
async def test_a_task_without_a_word_is_an_error_that_says_so(task: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="target"):
        EchoEnvironment(task).prompt()
    with pytest.raises(ValueError, match="target"):
        await EchoEnvironment(task).echo("hello")


def test_a_session_runs_no_code_to_start_or_end() -> None:
    hosted = host(EchoEnvironment)
    assert hosted.plain_constructor
    assert hosted.plain_setup
    assert hosted.plain_teardown


def test_hint_is_for_sessions_only() -> None:
    hosted = host(EchoEnvironment)
    assert [spec.name for spec in hosted.listing.tools] == ["echo"]
    assert [spec.name for spec in EchoEnvironment({"target": "hello"}).list_task_tools().tools] == ["hint"]
    assert not hosted.tools["hint"].shared


def test_the_tool_takes_one_described_string() -> None:
    (echo,) = host(EchoEnvironment).listing.tools
    assert echo.input_schema is not None
    assert echo.input_schema["required"] == ["text"]
    text = echo.input_schema["properties"]["text"]
    assert (text["type"], text["description"]) == ("string", "The string to echo back.")


def test_the_hosted_environment_is_called_as_trl_expects() -> None:
    hosted = host(EchoEnvironment)
    assert hosted.key == "echoenvironment"
    assert [(split.name, split.type) for split in hosted.splits] == [("train", "train")]


async def test_the_scripted_player_wins_every_task_and_the_bad_one_none() -> None:
    for task in EchoEnvironment.list_tasks("train"):
        assert await play(Direct(EchoEnvironment(task))) == 1.0
        assert await play_wrong(Direct(EchoEnvironment(task))) == 0.0


async def test_an_observer_is_told_of_every_call() -> None:
    seen: list[tuple[str, Any]] = []
    session = Direct(EchoEnvironment({"target": "hello"}))
    await play(session, lambda name, input, output: seen.append((name, input)))
    assert seen == [("echo", {"text": "hello"})]
