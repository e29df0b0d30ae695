"""From the rewards of calls to the one of an episode."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orsay_eval.reward import check_reward, reduce_rewards
from orsay_trl import discounted
from orsay_trl.trainer.metrics import episode_metrics

NUMBERS = st.floats(-1e6, 1e6)
REWARDS = st.lists(st.none() | NUMBERS, max_size=12)
POLICIES: list[Any] = ["last", "sum", "max", "mean", discounted(0.9)]


@given(REWARDS)
def test_policies_say_what_their_names_say(rewards: list[float | None]) -> None:
    scored = [reward for reward in rewards if reward is not None]
    found = {policy: reduce_rewards(policy, rewards) for policy in POLICIES}
    if not scored:
        assert set(found.values()) == {None}
        return
    assert found["last"] == scored[-1]
    assert found["max"] == max(scored)
    assert found["sum"] == pytest.approx(sum(scored), rel=1e-9, abs=1e-3)
    assert found["mean"] == pytest.approx(sum(scored) / len(scored), rel=1e-9, abs=1e-3)
    by_hand = sum(0.9**t * r for t, r in enumerate(rewards) if r is not None)
    assert found[discounted(0.9)] == pytest.approx(by_hand, rel=1e-9, abs=1e-3)


@given(REWARDS, st.sampled_from(["last", "sum", "max", "mean"]), st.integers(0, 12))
def test_a_call_without_a_reward_changes_nothing(
    rewards: list[float | None], policy: Any, place: int
) -> None:
    more = [*rewards[:place], None, *rewards[place:]]
    assert reduce_rewards(policy, more) == reduce_rewards(policy, rewards)


@given(REWARDS)
def test_discounting_counts_calls_without_a_reward_as_time(rewards: list[float | None]) -> None:
    later, sooner = (
        reduce_rewards(discounted(0.5), [None, *rewards]),
        reduce_rewards(discounted(0.5), rewards),
    )
    assert later == (None if sooner is None else pytest.approx(sooner / 2, rel=1e-9, abs=1e-9))
    assert reduce_rewards(discounted(1), rewards) == reduce_rewards("sum", rewards)


@given(st.lists(NUMBERS, min_size=1))
def test_a_gamma_of_zero_leaves_the_first_call(rewards: list[float]) -> None:
    assert reduce_rewards(discounted(0), rewards) == rewards[0]


def test_a_sum_does_not_gather_rounding_errors() -> None:
    assert reduce_rewards("sum", [0.1] * 10) == 1.0
    assert reduce_rewards("mean", [1e16, 1.0, -1e16]) == 1 / 3


@pytest.mark.parametrize("gamma", [-0.1, 1.1, math.nan])
def test_a_gamma_that_is_none_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match="gamma"):
        discounted(gamma)


def test_policies_are_checked_when_they_are_given() -> None:
    for policy in (*POLICIES, len):
        check_reward(policy)
    for wrong in ("best", 3, None, "Last"):
        with pytest.raises(ValueError, match="last, sum, max, mean"):
            check_reward(wrong)
    with pytest.raises(ValueError, match="no such policy"):
        reduce_rewards("best", [1.0])  # type: ignore[arg-type]


def test_a_policy_can_be_pickled_and_compared() -> None:
    assert pickle.loads(pickle.dumps(discounted(0.9))) == discounted(0.9) != discounted(0.8)


class _Played:
    """What metrics read of an episode."""

    def __init__(self, fault: str | None) -> None:
        self.fault, self.retried, self.seconds = fault, ["worker_lost"], 2.0
        self.steps: list[Any] = []
        self.finished = True
        self.metadata: list[dict[str, Any] | None] = [{"rewards": {"a": 1, "b": "no", "c": True}}, None]


def test_metrics_say_nothing_of_the_reward_of_a_lost_episode() -> None:
    lost: Any = _Played("worker_lost")
    found = episode_metrics(lost, None, success=1.0, tools=["x"], faults=["worker_lost", "time_limit"])
    assert found == {
        "faults": 1.0,
        "faults/worker_lost": 1.0,
        "faults/time_limit": 0.0,
        "retries": 1.0,
        "seconds": 2.0,
    }


@pytest.mark.parametrize(("reward", "solved"), [(0.5, 1.0), (0.49, 0.0), (None, None)])
def test_success_is_a_reward_from_a_threshold_on(reward: float | None, solved: float | None) -> None:
    played: Any = _Played(None)
    found = episode_metrics(played, reward, success=0.5)
    assert (found.get("reward"), found.get("success")) == (reward, solved)
    assert (found["reward/a"], "reward/b" in found) == (1.0, False)
