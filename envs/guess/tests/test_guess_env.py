"""The guess environment: tasks by index, hints, rewards, what does not leak, and its scripted players."""

import json
import math
from typing import Any

import pytest
from guess_env.env import GuessEnvironment
from guess_env.policy import play, play_stubborn
from guess_env.tasks import SPLITS, TASKS_PER_SPLIT, hidden_number, make_task
from orsay import TextBlock, ToolOutput, host
from orsay.errors import InvalidIndex, ListingUnsupported


class Direct:
    """A session without a server."""

    def __init__(self, environment: GuessEnvironment) -> None:
        self.environment = environment

    async def prompt(self) -> list[TextBlock]:
        return [TextBlock(text=self.environment.prompt())]

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput:
        assert name == "guess"
        return await self.environment.guess(**input)


def text_of(output: ToolOutput) -> str:
    return "".join(block.text for block in output.blocks if isinstance(block, TextBlock))


def game(index: int = 0) -> tuple[GuessEnvironment, int]:
    task = make_task("train", index)
    return GuessEnvironment(task), hidden_number(task)


@pytest.mark.parametrize("split", SPLITS)
def test_each_split_counts_a_hundred_thousand_tasks_and_gets_them_by_index(split: str) -> None:
    assert GuessEnvironment.num_tasks(split) == TASKS_PER_SPLIT == 100_000
    last = GuessEnvironment.get_task(split, 99_999)
    assert (last["split"], last["index"]) == (split, 99_999)
    assert GuessEnvironment.get_task(split, -1) == last


@pytest.mark.parametrize("index", [100_000, -100_001])
def test_an_index_outside_the_split_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError, match="100000"):
        GuessEnvironment.get_task("train", index)


def test_an_unknown_split_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no split 'dev'"):
        GuessEnvironment.get_task("dev", 0)


def test_numbers_are_spread_over_the_range_and_differ_between_splits() -> None:
    numbers = {
        split: [hidden_number(make_task(split, index)) for index in range(0, 3000, 3)] for split in SPLITS
    }
    assert numbers["train"] != numbers["test"]
    for split in SPLITS:
        assert set(numbers[split]) <= set(range(1, 101))
        assert len(set(numbers[split])) > 95


def test_a_task_tells_nothing_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [make_task("train", index) for index in range(0, 300, 3)]
    numbers = [hidden_number(task) for task in tasks]
    monkeypatch.setenv("GUESS_KEY", "another key")
    assert [make_task("train", index) for index in range(0, 300, 3)] == tasks
    assert [hidden_number(task) for task in tasks] != numbers


@pytest.mark.parametrize(
    "change",
    [{"high": 2}, {"index": -1}, {"index": True}, {"split": "dev"}, {"split": []}, {"max_guesses": 999}],
)
def test_a_task_that_was_not_made_here_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a task of the guess environment"):
        GuessEnvironment({**make_task("train", 0), **change})


def test_a_task_survives_the_wire() -> None:
    assert GuessEnvironment(json.loads(json.dumps(make_task("test", 5)))).high == 10_000


def test_the_prompt_tells_range_and_guesses() -> None:
    environment, _ = game()
    assert "from 1 to 100" in environment.prompt()
    assert "10 guesses" in environment.prompt()


async def test_a_wrong_guess_is_answered_with_the_direction() -> None:
    environment, number = game(2)
    assert "higher" in text_of(await environment.guess(number - 1))
    assert "lower" in text_of(await environment.guess(number + 1))


async def test_the_right_number_earns_one_and_ends_the_episode() -> None:
    environment, number = game()
    output = await environment.guess(number)
    assert (output.reward, output.finished) == (1.0, True)


async def test_a_wrong_guess_earns_its_share_of_the_information() -> None:
    environment, number = game()
    first = await environment.guess(50)
    assert number != 50
    left = 50 if number > 50 else 49
    assert first.reward == pytest.approx(0.1 * math.log(100 / left) / math.log(100))
    again = await environment.guess(50)
    assert again.reward == 0.0
    assert "could have known" in text_of(again)


@pytest.mark.parametrize("number", [0, 101, -5, 10**30, -(10**4000)])
async def test_a_guess_outside_the_range_is_refused_in_words_and_used_up(number: int) -> None:
    environment, _ = game()
    output = await environment.guess(number)
    assert text_of(output) == "That is not from 1 to 100. Guesses left: 9."
    assert (output.reward, output.finished) == (0.0, False)


async def test_the_last_wrong_guess_ends_the_episode_without_telling_the_number() -> None:
    environment, number = game()
    outputs = [await environment.guess(number + 1 if number < 100 else 99) for _ in range(10)]
    assert [output.finished for output in outputs] == [False] * 9 + [True]
    assert "you lose" in text_of(outputs[-1])
    assert all((output.reward or 0.0) <= 0.1 for output in outputs)
    assert str(number) not in text_of(outputs[-1]).replace(str(number + 1), "")


async def test_after_the_end_nothing_is_won_or_lost() -> None:
    environment, number = game()
    await environment.guess(number)
    output = await environment.guess(number)
    assert (output.reward, output.finished) == (None, True)
    assert "over" in text_of(output)


def test_nothing_is_listed_at_start() -> None:
    hosted = host(GuessEnvironment)
    assert [split.name for split in hosted.splits] == list(SPLITS)
    assert [split.type for split in hosted.splits] == list(SPLITS)
    (guess,) = hosted.listing.tools
    assert guess.input_schema is not None
    assert guess.input_schema["properties"]["number"]["type"] == "integer"


async def test_tasks_are_served_by_index_and_a_listing_is_refused() -> None:
    tasks = host(GuessEnvironment).tasks
    assert await tasks.num_tasks("train") == 100_000
    assert await tasks.get_task("test", 99_999) == make_task("test", 99_999)
    assert await tasks.get_task_range("validation", 10, 12) == [
        make_task("validation", at) for at in (10, 11)
    ]
    with pytest.raises(InvalidIndex):
        await tasks.get_task("train", 100_000)
    with pytest.raises(ListingUnsupported):
        await tasks.list_tasks("train")


@pytest.mark.parametrize("index", range(9))
async def test_halving_the_range_wins_within_the_guesses(index: int) -> None:
    calls: list[float | None] = []
    environment, _ = game(index)
    reward = await play(Direct(environment), lambda name, input, output: calls.append(output.reward))
    assert calls[-1] == 1.0
    assert 1.0 <= reward <= 1.1
    assert environment.guesses_left >= 3


@pytest.mark.parametrize("index", range(3))
async def test_a_stubborn_player_earns_nothing(index: int) -> None:
    environment, _ = game(index)
    assert await play_stubborn(Direct(environment)) == 0.0
    assert environment.guesses_left == 0
