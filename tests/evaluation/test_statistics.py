"""Means, intervals and pass@k against tables, enumeration and simulation."""

from __future__ import annotations

import math
import random
from itertools import combinations

import numpy as np
import pytest
from orsay_eval.statistics import estimate, pass_at_k, pass_estimate, quantiles, standard_error
from orsay_eval.summary import ks, summarize
from orsay_protocol.evaluation import EvaluatedEpisode
from orsay_protocol.student import t_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [
        (1, 12.7062),
        (2, 4.3027),
        (3, 3.1824),
        (4, 2.7764),
        (9, 2.2622),
        (30, 2.0423),
        (99, 1.9842),
        (400, 1.9659),
        (1000, 1.9623),
    ],
)
def test_quantiles_of_students_t_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_attempt(n: int) -> None:
    for c in range(n + 1):
        attempts = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            draws = list(combinations(attempts, k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_pass_at_k_needs_k_attempts() -> None:
    with pytest.raises(ValueError, match="pass@3 needs 3 attempts"):
        pass_at_k(2, 1, 3)
    assert pass_estimate([(2, 1), (1, 1)], 3) is None


def test_tasks_with_too_few_attempts_take_no_part_in_pass_at_k() -> None:
    found = pass_estimate([(2, 2), (2, 0), (1, 0)], 2)
    assert found is not None and found.mean == 0.5


def test_the_interval_is_that_of_the_clustered_standard_error() -> None:
    """Miller's formula, term by term: with as many attempts at each task it is that of the tasks' means."""
    rng = random.Random(0)
    tasks = [[rng.gauss(place % 5, 1) for _ in range(4)] for place in range(30)]
    everything = [value for task in tasks for value in task]
    n, mean = len(everything), sum(everything) / len(everything)
    within = sum((value - mean) ** 2 for value in everything)
    across = sum(
        (a - mean) * (b - mean) for t in tasks for i, a in enumerate(t) for j, b in enumerate(t) if i != j
    )
    clustered = math.sqrt(within + across) / n * math.sqrt(len(tasks) / (len(tasks) - 1))
    found = estimate(tasks)
    assert found is not None and found.low is not None and found.high is not None
    assert found.mean == pytest.approx(mean)
    assert (found.high - found.low) / 2 == pytest.approx(clustered * t_quantile(29))


def test_attempts_at_one_task_do_not_make_an_interval_narrower() -> None:
    """Ten times the same attempts add nothing new; over episodes, the interval would shrink to a third."""
    tasks = [[float(place % 3)] for place in range(20)]
    once, tenfold = estimate(tasks), estimate([task * 10 for task in tasks])
    assert once == tenfold


def test_a_task_counts_once_however_many_of_its_attempts_were_lost() -> None:
    found = estimate([[1.0], [0.0, 0.0, 0.0, 0.0]])
    assert found is not None and found.mean == 0.5


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_an_interval_of_nothing_but_right_or_wrong_is_not_empty(value: float) -> None:
    found = estimate([[value] * 4 for _ in range(10)])
    assert found is not None and found.low is not None and found.high is not None
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.high - found.low == pytest.approx(0.3085, abs=1e-4)  # Clopper and Pearson: 10 of 10


def test_one_task_or_one_value_has_no_spread() -> None:
    for tasks in ([[0.2, 0.4]], [[0.3], [0.3], [0.3]]):
        found = estimate(tasks)
        assert found is not None and (found.low, found.high) == (None, None)
    assert estimate([[], []]) is None


@pytest.mark.parametrize("spread", [0.0, 0.3])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_intervals_of_shares_hold_the_truth_as_often_as_they_say(share: float, spread: float) -> None:
    """500 evaluations of 40 tasks with 4 attempts, of tasks that differ by ``spread``; 95%, within chance."""
    rng = random.Random(int(1000 * share + spread))
    reach = min(spread, share, 1 - share)
    held = 0
    for _ in range(500):
        tasks = []
        for _ in range(40):
            p = share + rng.choice((-reach, reach))
            tasks.append([float(rng.random() < p) for _ in range(4)])
        found = estimate(tasks)
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= share <= found.high
    assert held >= 460


def test_intervals_of_means_hold_the_truth_as_often_as_they_say() -> None:
    rng = random.Random(1)
    held = 0
    for _ in range(500):
        tasks = [[rng.gauss(mean, 1) for _ in range(3)] for mean in (rng.gauss(2, 1) for _ in range(12))]
        found = estimate(tasks)
        assert found is not None and found.low is not None and found.high is not None
        held += found.low <= 2 <= found.high
    assert 460 <= held <= 490


def test_quantiles_and_errors_are_those_of_numpy() -> None:
    values = [random.Random(2).random() for _ in range(57)]
    found = quantiles(values)
    assert found is not None
    assert found.p50 == pytest.approx(np.quantile(values, 0.5))
    assert found.p95 == pytest.approx(np.quantile(values, 0.95))
    assert found.max == max(values) and found.mean == pytest.approx(np.mean(values))
    assert standard_error(values) == pytest.approx(np.std(values, ddof=1) / math.sqrt(57))
    assert quantiles([]) is None and quantiles([3.0]) is not None


def test_pass_at_k_is_given_for_powers_of_two_and_k_itself() -> None:
    assert [ks(k) for k in (1, 2, 3, 4, 10)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 4, 8, 10]]


def episode(index: int, attempt: int, reward: float | None, fault: str | None = None) -> EvaluatedEpisode:
    return EvaluatedEpisode(
        task=f"test:{index}",
        split="test",
        index=index,
        attempt=attempt,
        reward=reward,
        success=None if reward is None else reward >= 1,
        fault=fault,
        stop="fault" if fault else "finished",
    )


def test_a_summary_leaves_faults_out_of_every_mean_and_counts_them() -> None:
    played = [episode(0, 0, 1.0), episode(0, 1, None, "worker_lost"), episode(1, 0, 0.0), episode(1, 1, 0.0)]
    found = summarize(played, n_tasks=3, k=2, success=1.0)
    assert (found.episodes, found.planned, found.scored) == (4, 6, 3)
    assert found.mean_reward is not None and found.mean_reward.mean == 0.5
    assert found.faults == {"worker_lost": 1} and found.stops == {"finished": 3}
    assert [(entry.k, entry.mean) for entry in found.pass_at_k] == [(1, 0.5), (2, 0.0)]
