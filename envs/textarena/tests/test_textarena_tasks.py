"""Tasks by index: splits of all games and of one, seeds that no two splits share, tasks that are refused."""

from typing import Any

import pytest
from orsay import Split
from textarena_env.catalog import GAMES
from textarena_env.options import options_for
from textarena_env.tasks import TEST_TASKS, TRAIN_TASKS, game_and_seed, make_task, num_tasks, splits


def test_there_are_splits_of_all_games_and_of_each() -> None:
    found = splits()
    assert found[:2] == ["train", "test"]
    assert Split(name="Mastermind-v0-train", type="train") in found
    assert Split(name="Mastermind-v0-test", type="test") in found
    assert len(found) == 2 + 2 * len(GAMES)


def test_each_split_has_the_tasks_that_it_counts() -> None:
    for split in splits():
        name = split if isinstance(split, str) else split.name
        games = len(GAMES) if name in ("train", "test") else 1
        assert num_tasks(name) == games * (TEST_TASKS if name.endswith("test") else TRAIN_TASKS)
        last = make_task(name, num_tasks(name) - 1)
        assert make_task(name, -1) == last
        assert game_and_seed(last)[1] == last["seed"]


def test_neighbouring_tasks_are_of_all_games_in_turn() -> None:
    first = [make_task("train", index) for index in range(2 * len(GAMES))]
    assert [task["game"] for task in first] == [game.name for game in GAMES] * 2
    assert [task["seed"] for task in first] == [0] * len(GAMES) + [1] * len(GAMES)
    assert len({task["id"] for task in first}) == len(first)


def test_a_split_of_one_game_holds_its_tasks_of_the_split_of_all() -> None:
    task = make_task("train", 5 * len(GAMES) + 3)
    assert make_task(f"{GAMES[3].name}-train", 5) == task


def test_no_seed_is_both_for_training_and_for_testing() -> None:
    training = {make_task("PegJump-v0-train", index)["seed"] for index in (0, -1)}
    testing = {make_task("PegJump-v0-test", index)["seed"] for index in (0, -1)}
    assert max(training) < min(testing)


@pytest.mark.parametrize(("split", "index"), [("train", 470_000), ("PegJump-v0-test", -1_001)])
def test_an_index_outside_the_split_is_an_index_error(split: str, index: int) -> None:
    with pytest.raises(IndexError, match=f"no task {index} in {split}"):
        make_task(split, index)


@pytest.mark.parametrize("split", ["dev", "Wordle-v0-train", "PegJump-v0", "-train", ""])
def test_an_unknown_split_is_refused_by_name(split: str) -> None:
    with pytest.raises(ValueError, match=f"no split '{split}'"):
        num_tasks(split)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({}, "no game None is offered; there are: 2048"),
        ({"game": "Wordle-v0", "seed": 0}, "no game 'Wordle-v0' is offered"),
        ({"game": ["PegJump-v0"], "seed": 0}, "no game"),
        ({"game": "PegJump-v0"}, "whole number from 0 to 4294967295; found None"),
        ({"game": "PegJump-v0", "seed": True}, "found True"),
        ({"game": "PegJump-v0", "seed": -1}, "found -1"),
        ({"game": "PegJump-v0", "seed": 2**32}, "found 4294967296"),
        ({"game": "PegJump-v0", "seed": 0.5}, "found 0.5"),
        ({"game": "PegJump-v0", "seed": 0, "initial_empty": 3}, "found initial_empty"),
    ],
)
def test_a_task_that_no_game_can_play_is_refused(task: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        game_and_seed(task)


def test_options_come_from_the_seed_where_the_package_has_one_puzzle_only() -> None:
    for name in ("Cryptarithm-v0", "Nim-v0", "PegJump-v0"):
        assert options_for(name, 3) == options_for(name, 3)
        assert len({str(options_for(name, seed)) for seed in range(40)}) > 10, name
    assert options_for("Mastermind-v0", 3) == {}
