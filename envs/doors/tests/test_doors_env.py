"""The doors environment: its pairs of doors and words, what its tools answer, and its scripted players."""

import json
from collections import Counter
from typing import Any

import pytest
from doors_env.env import DoorsEnvironment
from doors_env.policy import play, play_blind, play_word
from doors_env.tasks import DOORS, TASKS, WORDS, code_word
from orsay import JSONObject, TextBlock, ToolOutput, host


class Direct:
    """A session without a server."""

    def __init__(self, environment: DoorsEnvironment) -> None:
        self.environment = environment

    async def prompt(self) -> list[TextBlock]:
        return [TextBlock(text=self.environment.prompt())]

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput:
        if name == "look":
            return ToolOutput(blocks=[TextBlock(text=await self.environment.look(**input))])
        return await self.environment.open(**input)


def pair(task: JSONObject) -> tuple[int, str]:
    return task["door"], code_word(task)


def game(split: str = "train", index: int = 0) -> tuple[DoorsEnvironment, int, str]:
    task = TASKS[split][index]
    return (DoorsEnvironment(task), *pair(task))


def text_of(output: ToolOutput) -> str:
    return "".join(block.text for block in output.blocks if isinstance(block, TextBlock))


def test_there_are_twenty_training_and_five_held_out_tasks() -> None:
    splits = host(DoorsEnvironment).splits
    assert [(split.name, split.type) for split in splits] == [("train", "train"), ("test", "test")]
    assert (len(TASKS["train"]), len(TASKS["test"])) == (20, 5)


def test_every_pair_of_door_and_word_is_either_trained_or_held_out() -> None:
    trained, held_out = ({pair(task) for task in TASKS[split]} for split in ("train", "test"))
    assert len(trained) == 20
    assert len(held_out) == 5
    assert not trained & held_out
    assert {door for door, _ in held_out} == set(range(1, DOORS + 1))
    assert {word for _, word in held_out} == set(WORDS)


def test_each_door_and_each_word_is_trained_equally_often() -> None:
    doors, words = zip(*(pair(task) for task in TASKS["train"]), strict=True)
    assert Counter(doors) == dict.fromkeys(range(1, DOORS + 1), 4)
    assert Counter(words) == dict.fromkeys(WORDS, 4)


def test_a_task_and_its_prompt_do_not_tell_the_word() -> None:
    for task in (*TASKS["train"], *TASKS["test"]):
        assert sorted(task) == ["door", "id", "index", "split"]
        assert code_word(task) not in json.dumps(task) + DoorsEnvironment(task).prompt()


@pytest.mark.parametrize(
    "change", [{"door": 2}, {"index": 20}, {"index": -1}, {"split": "dev"}, {"word": "amber"}]
)
def test_a_task_that_was_not_made_here_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a task of the doors environment"):
        DoorsEnvironment({**TASKS["train"][0], **change})


async def test_looking_at_the_door_tells_its_word_as_often_as_asked() -> None:
    environment, door, word = game("train", 13)
    for _ in range(3):
        assert await environment.look(door) == f"On door {door} is written: {word}"


@pytest.mark.parametrize("door", [0, 2, -1, 11, 10**300])
async def test_nothing_is_written_on_another_door(door: int) -> None:
    environment, _, _ = game()
    assert await environment.look(door) == "Nothing is written on that door."


async def test_the_word_opens_the_door_and_ends_the_episode() -> None:
    environment, _, word = game("test", 3)
    output = await environment.open(word)
    assert (text_of(output), output.reward, output.finished) == ("The door opens.", 1.0, True)


@pytest.mark.parametrize(
    "change", [str.upper, lambda word: f"{word} ", lambda word: "", lambda word: "amber"]
)
async def test_anything_else_earns_nothing_and_ends_the_episode_too(change: Any) -> None:
    environment, _, word = game()
    output = await environment.open(change(word))
    assert (text_of(output), output.reward, output.finished) == ("The door stays shut.", 0.0, True)


async def test_after_the_attempt_nothing_is_won() -> None:
    environment, _, word = game()
    await environment.open("amber")
    output = await environment.open(word)
    assert (output.reward, output.finished) == (None, True)


async def test_looking_wins_every_task_and_opening_blindly_no_training_task() -> None:
    seen: list[tuple[str, Any]] = []
    for task in (*TASKS["train"], *TASKS["test"]):
        assert (
            await play(Direct(DoorsEnvironment(task)), lambda name, *rest: seen.append((name, rest))) == 1.0
        )
    assert [name for name, _ in seen] == ["look", "open"] * 25
    for task in TASKS["train"]:
        assert await play_blind(Direct(DoorsEnvironment(task))) == 0.0


async def test_a_player_may_be_told_which_word_to_say() -> None:
    for word in WORDS:
        environment, _, right = game("train", 7)
        assert await play_word(Direct(environment), word) == float(word == right)
