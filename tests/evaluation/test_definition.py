"""One definition for evaluation, tests and training."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar

import pytest
from orsay_eval import Evaluation, discounted
from orsay_eval.definition import parse_tasks
from orsay_eval.reward import parse_reward, reward_of
from orsay_protocol import ToolOutput


class Played:
    """An episode with these rewards."""

    finished, last_output = True, ""
    metadata: ClassVar[list[dict[str, Any] | None]] = []

    def __init__(self, rewards: list[float | None]) -> None:
        self.rewards = rewards


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", [3]), ("0,4, 7", [0, 4, 7]), ("2-4", [2, 3, 4]), ("2:4", [2, 3]), ("0-2,1,9", [0, 1, 2, 9])],
)
def test_tasks_are_read_from_a_list(text: str, expected: list[int]) -> None:
    assert parse_tasks(text) == expected


@pytest.mark.parametrize("text", ["", "a", "-1", "4-2", "3:3", "1,,2", "1-2-3", "0-99999999999"])
def test_what_is_no_list_of_tasks_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_tasks(text)


@pytest.mark.parametrize(
    "arguments",
    [
        {"tasks": 0},
        {"tasks": []},
        {"tasks": [-1]},
        {"tasks": [1, 1]},
        {"k": 0},
        {"max_turns": 0},
        {"nudges": -1},
        {"retries": -1},
        {"reward": "median"},
        {"sample": 1},
        {"sample": 1, "tasks": [1, 2]},
        {"call_timeout_s": 0},
        {"unscored": float("nan")},
        {"success": float("inf")},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Evaluation(**arguments)  # type: ignore[arg-type]  # on purpose


def test_tasks_are_the_first_of_the_split_or_those_named() -> None:
    assert Evaluation(tasks=3).indices(10) == [0, 1, 2] == Evaluation(tasks=3).indices()
    assert Evaluation(tasks=3).indices(2) == [0, 1] == Evaluation().indices(2)
    assert Evaluation(tasks=[7, 2]).indices() == [7, 2]
    with pytest.raises(ValueError, match="has 5 tasks, and none at 7"):
        Evaluation(tasks=[7, 2]).indices(5)
    with pytest.raises(ValueError, match="give the number"):
        Evaluation().indices(10**9)
    with pytest.raises(ValueError, match="must be asked"):
        Evaluation().indices()


def test_a_sample_of_a_huge_split_costs_what_it_draws() -> None:
    drawn = Evaluation(tasks=5, sample=1).indices(10**15)
    assert len(set(drawn)) == 5 and max(drawn) > 10**12


def test_an_evaluation_can_be_a_key() -> None:
    assert len({Evaluation(tasks=[1, 2]), Evaluation(tasks=range(1, 3)), Evaluation(tasks=[2])}) == 2


@pytest.mark.parametrize(
    "rewards", [[0.5], [0.25, None, 1.0], [None, None], [], [1.0, -1.0, 0.5, None]], ids=str
)
@pytest.mark.parametrize("name", ["last", "sum", "max", "mean", "discounted:0.9"])
def test_rewards_mean_what_they_mean_in_training(name: str, rewards: list[float | None]) -> None:
    pytest.importorskip("trl", reason="needs the extra 'trl'")
    import orsay_trl
    from orsay_trl.play.episode import Rules, Tools
    from orsay_trl.play.source import TaskRef

    policy: Any = orsay_trl.discounted(0.9) if name.startswith("discounted") else name
    nowhere: Any = None
    trained = orsay_trl.Episode(nowhere, TaskRef("train", 0), Tools(), Rules(reward=policy, unscored=None))
    for reward in rewards:
        output = ToolOutput(blocks=[], reward=reward, finished=False)
        trained.steps.append(orsay_trl.Step("look", {}, output, "", 0.0))
    evaluated = Evaluation(reward=policy)
    assert evaluated.reward == parse_reward(name)
    assert evaluated.settings()["reward"] == name
    assert reward_of(evaluated.reward, Played(rewards)) == trained.reward


@pytest.mark.parametrize("text", ["median", "discounted", "discounted:x", "discounted:2", ""])
def test_what_is_no_reward_policy_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match=r"discounted:GAMMA"):
        parse_reward(text)


def test_a_definition_gives_the_arguments_of_a_spec() -> None:
    pytest.importorskip("trl", reason="needs the extra 'trl'")
    from orsay_trl import EnvironmentSpec

    evaluation = Evaluation("guess", split="test", tasks=20, reward="sum", success=0.9, retries=1)
    spec = EnvironmentSpec("http://127.0.0.1:1", num_tasks=500, **evaluation.spec_arguments())
    assert spec.success == 0.9 and spec.rules.reward == "sum" and spec.rules.retries == 1
    assert "'train'" in repr(spec) and "'guess'" in repr(spec)
    trained = EnvironmentSpec("http://127.0.0.1:1", **evaluation.only([3, 4]).spec_arguments(train=True))
    assert "'test'" in repr(trained)
    EnvironmentSpec("http://127.0.0.1:1", **Evaluation(reward=discounted(0.9)).spec_arguments())


def test_tasks_that_a_spec_cannot_have_are_reported() -> None:
    with pytest.raises(ValueError, match="takes a split from its start"):
        Evaluation(tasks=[3, 4]).spec_arguments()
    with pytest.raises(ValueError, match="name the tasks"):
        Evaluation(tasks=3, sample=1).spec_arguments()
    assert Evaluation(tasks=[0, 1]).spec_arguments()["eval_num_tasks"] == 2


def test_every_public_name_is_there_and_none_is_hidden_by_a_module() -> None:
    import orsay_eval

    homes = {name for names in orsay_eval._HOMES.values() for name in names}
    assert sorted(orsay_eval.__all__) == sorted(homes)
    for name in orsay_eval.__all__:
        assert not inspect.ismodule(getattr(orsay_eval, name)), name
    modules = {path.stem for path in Path(orsay_eval.__file__).parent.glob("*.py")}
    assert not modules & homes
