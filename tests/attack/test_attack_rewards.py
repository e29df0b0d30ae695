"""Rewards beyond a float, and reward functions that fail: the same in evaluations and in training."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orsay.journal.export import existing
from orsay.journal.options import JournalOptions, journal_url
from orsay.journal.read.query import trajectories
from orsay.journal.schema import sessions
from orsay_client import Client
from orsay_eval import Evaluation, Turn, evaluate, load_report
from orsay_trl import EnvironmentSpec, discounted
from sqlalchemy import select

from tests.support.bridge_server import EnvServer, serve_environments

pytestmark = pytest.mark.process

HUGE = 1e308


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(tmp_path_factory.mktemp("rewards"), "Words") as found:
        yield found


def raises(episode: Any) -> float:
    return float(episode.rewards[99])


def squared(episode: Any) -> float:
    return float(
        sum(reward**2 for reward in episode.rewards)
    )  # a float to the power of 2 raises where it overflows


POLICIES: dict[str, tuple[Any, list[float], float | None]] = {
    "a sum beyond a float": ("sum", [HUGE, HUGE], None),
    "a discounted sum beyond a float": (discounted(1), [HUGE, HUGE], None),
    "a sum that comes back": ("sum", [HUGE, HUGE, -HUGE, -HUGE, 2.0], 2.0),
    "a mean of what no float can add up": ("mean", [HUGE, HUGE, -HUGE, -HUGE, 5.0], 1.0),
    "a function that raises": (raises, [1.0], None),
    "a function that overflows": (squared, [1e200], None),
    "no number": (lambda episode: float("nan"), [1.0], None),
    "endless": (lambda episode: -math.inf, [1.0], None),
    "a text": (lambda episode: "1.0", [1.0], None),
    "a list": (lambda episode: [1.0], [1.0], None),
    "a whole number beyond a float": (lambda episode: 10**400, [1.0], None),
    "a whole number": (lambda episode: 3, [1.0], 3.0),
    "a boolean": (lambda episode: True, [1.0], 1.0),
    "not scored": (lambda episode: None, [1.0], 0.0),
    "not scored, and no call": ("sum", [], 0.0),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_bad_reward_is_a_fault_of_its_episode_in_evaluations_and_in_training(
    env_server: EnvServer, tmp_path: Path, name: str
) -> None:
    policy, rewards, wanted = POLICIES[name]

    def play(turn: Turn) -> Any:
        return ("points", {"number": rewards[turn.number]}) if turn.number < len(rewards) else None

    output = tmp_path / "report.json"
    evaluation = Evaluation("Words", split="train", tasks=2, reward=policy)
    report = evaluate(evaluation, env_server.url, play, journal=False, output=output)
    spec = EnvironmentSpec(env_server.url, reward=policy, max_fault_share=1, retries=0)
    place: Any = spec.environment_factory()
    place.reset(task_split="train", task_index=0)
    for reward in rewards:
        place.points(number=reward)
    trained = spec.reward_funcs(environments=[place])
    spec.close()

    fault = "bad_reward" if wanted is None else None
    assert [(episode.reward, episode.fault) for episode in report.episodes] == [(wanted, fault)] * 2
    assert (trained, place.episode.fault) == ([wanted], fault)
    assert report.summary.scored == (0 if wanted is None else 2)
    if wanted is None:
        assert report.summary.faults == {"bad_reward": 2}
        for message in (report.episodes[0].fault_message, place.episode.fault_message):
            assert "the reward policy" in message
    assert "Infinity" not in output.read_text() and "NaN" not in output.read_text()
    assert load_report(output).episodes == report.episodes


def test_rewards_that_a_float_holds_are_evaluated_however_large(
    env_server: EnvServer, tmp_path: Path
) -> None:
    def play(turn: Turn) -> Any:
        return ("points", {"number": HUGE}) if turn.number < 2 else None

    output = tmp_path / "report.json"
    report = evaluate(
        Evaluation("Words", split="train", tasks=3, k=2, reward="last"),
        env_server.url,
        play,
        journal=False,
        output=output,
    )
    assert [episode.reward for episode in report.episodes] == [HUGE] * 6
    assert {episode.reward_sum for episode in report.episodes} == {None}, "their sum is beyond a float"
    assert report.summary.mean_reward is not None and report.summary.mean_reward.mean == HUGE
    json.loads(output.read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("reward", [1.1e18, -1e30, HUGE])
def test_a_trainer_gets_no_reward_whose_square_it_cannot_hold(env_server: EnvServer, reward: float) -> None:
    spec = EnvironmentSpec(env_server.url, max_fault_share=1, retries=0)
    place: Any = spec.environment_factory()
    place.reset(task_split="train", task_index=0)
    place.points(number=1e18)
    assert (place.reward, place.get_reward()) == (1e18, 1e18)
    place.points(number=reward)
    assert place.get_reward() is None
    assert place.episode.fault == "bad_reward"
    assert "from -1e+18 to 1e+18" in place.episode.fault_message
    spec.close()


def test_the_return_of_training_is_that_of_evaluations(env_server: EnvServer) -> None:
    """``orsay_trl.discounted`` and ``orsay_eval.discounted`` are one and the same."""
    import orsay_eval
    import orsay_trl

    assert orsay_eval.discounted is orsay_trl.discounted
    policy = orsay_trl.discounted(0.5)
    report = evaluate(
        Evaluation("Words", split="train", tasks=1, reward=policy),
        env_server.url,
        lambda turn: ("points", {"number": 4}) if turn.number < 2 else None,
        journal=False,
    )
    assert [episode.reward for episode in report.episodes] == [6.0]
    assert report.settings["reward"] == "discounted:0.5"


def test_the_journal_holds_no_infinite_sum(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with (
        serve_environments(tmp_path, "Words", journal=str(path)) as env_server,
        Client(env_server.url) as client,
        client.environment("Words").session(split="train", index=0) as session,
    ):
        for _ in range(3):
            session.call("points", {"number": HUGE})
    with existing(JournalOptions(journal_url(str(path)))) as store, store.reading() as connection:
        [summary] = trajectories(connection).items
        kept = connection.scalar(select(sessions.c.reward_sum))
    assert (summary.reward, summary.reward_sum, kept) == (HUGE, None, None)
