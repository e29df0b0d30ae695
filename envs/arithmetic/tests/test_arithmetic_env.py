"""The arithmetic environment: prompt, calculator tool, graded last message, and its scripted players."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from arithmetic_env.env import ArithmeticEnvironment
from arithmetic_env.policy import play, play_wrong
from arithmetic_env.problems import Problems
from orsay import TextBlock, ToolOutput, host


class Direct:
    """A session without a server; the terminal tool runs on a thread, as under a server."""

    def __init__(self, environment: ArithmeticEnvironment) -> None:
        self.environment = environment

    async def prompt(self) -> list[TextBlock]:
        return [TextBlock(text=self.environment.prompt())]

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput:
        assert name == "calculator"
        return ToolOutput(blocks=[TextBlock(text=await self.environment.calculator(**input))])

    async def call_terminal(self, text: str) -> ToolOutput:
        return await asyncio.to_thread(self.environment.answer, text)


@pytest.fixture(scope="module", autouse=True)
def close_grader() -> Iterator[None]:
    yield
    ArithmeticEnvironment.grader.close()


def environment(index: int = 0) -> ArithmeticEnvironment:
    return ArithmeticEnvironment(Problems("train")[index])


def test_the_prompt_holds_the_question_and_how_to_answer() -> None:
    prompt = environment().prompt()
    assert Problems("train")[0]["question"] in prompt
    assert "Answer: 42" in prompt


async def test_the_calculator_answers_in_words_when_it_refuses() -> None:
    assert await environment().calculator("6 * 7") == "42"
    assert await environment().calculator("9**9**9**9") == "Error: the power is too large."


def test_the_right_last_message_earns_one_and_ends_the_episode() -> None:
    played = environment()
    output = played.answer(f"It is clear.\nAnswer: {played.problem.answer}")
    assert (output.reward, output.finished) == (1.0, True)
    assert output.blocks[0] == TextBlock(text="Correct.")


def test_a_wrong_last_message_earns_nothing_and_ends_the_episode() -> None:
    output = environment().answer("Answer: -1")
    assert (output.reward, output.finished) == (0.0, True)
    assert output.blocks[0] == TextBlock(text="Not correct.")


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"question": "What is 1 + 1?"},
        {**Problems("train")[0], "question": "What is 1 + 1?"},
        {**Problems("train")[0], "index": 4},
        {**Problems("train")[0], "index": 0.0},
        {**Problems("train")[0], "split": []},
    ],
)
def test_a_task_that_was_not_made_here_is_refused(task: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a task of the arithmetic environment"):
        ArithmeticEnvironment(task)


def test_hosted_it_lists_one_tool_and_a_terminal_tool() -> None:
    listing = host(ArithmeticEnvironment).listing
    assert [spec.name for spec in listing.tools] == ["calculator"]
    assert listing.terminal_tool is not None
    assert (listing.terminal_tool.name, listing.terminal_tool.arg) == ("answer", "message")


def test_hosted_it_has_three_splits() -> None:
    assert [split.name for split in host(ArithmeticEnvironment).splits] == ["train", "validation", "test"]


@pytest.mark.parametrize("index", range(8))
async def test_the_scripted_player_is_right_and_the_bad_one_is_wrong(index: int) -> None:
    seen: list[str] = []
    reward = await play(Direct(environment(index)), lambda name, input, output: seen.append(name))
    assert (reward, seen) == (1.0, ["calculator", "answer"])
    assert await play_wrong(Direct(environment(index))) == 0.0
