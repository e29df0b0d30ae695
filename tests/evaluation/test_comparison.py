"""What is noise and what is not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from orsay_eval import EvaluationError, EvaluationReport, compare, load_report
from orsay_eval.comparison import swap_test
from orsay_eval.summary import summarize

from tests.support.evaluated import episodes_of


def report(
    rewards: Sequence[Sequence[float | None]], *, split: str = "test", **settings: object
) -> EvaluationReport:
    """A report whose task ``i`` has these rewards; None is a fault."""
    episodes = episodes_of(rewards, split=split)
    k = max(map(len, rewards))
    return EvaluationReport(
        name="one",
        run="one",
        environment="sums",
        split=split,
        model="m",
        settings=settings,
        started_at=1.0,
        summary=summarize(episodes, n_tasks=len(rewards), k=k, success=1.0),
        episodes=episodes,
    )


def drawn(share: float, seed: int, *, tasks: int = 60, k: int = 4) -> list[list[float]]:
    """Tasks of very different difficulty, and a model that solves the share of them, on average."""
    rng = random.Random(seed)
    hard = random.Random(0)
    found = []
    for _ in range(tasks):
        p = min(1.0, max(0.0, hard.choice((0.0, 0.3, 0.9)) + share))
        found.append([float(rng.random() < p) for _ in range(k)])
    return found


@pytest.mark.parametrize(
    "differences", [[1.0], [1.0, -0.5, 0.25], [0.1, 0.1, 0.1, 0.0], [0.5, -0.5, 0.25, 0.75]]
)
def test_p_is_the_share_of_swaps_that_differ_as_much(differences: list[float]) -> None:
    seen = abs(sum(differences))
    ways = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    assert swap_test(differences) == pytest.approx(sum(way >= seen - 1e-12 for way in ways) / len(ways))


def test_drawn_swaps_agree_with_all_swaps() -> None:
    rng = random.Random(3)
    few = [rng.gauss(0.3, 1) for _ in range(13)]
    exact = swap_test(few)
    assert swap_test([*few, 1e-9]) == pytest.approx(exact, abs=0.02)  # one more: no longer all are tried


def test_models_that_are_the_same_differ_by_noise_as_often_as_they_should() -> None:
    noise = [
        compare(report(drawn(0.0, 2 * n, tasks=25)), report(drawn(0.0, 2 * n + 1, tasks=25))).reward.is_noise
        for n in range(60)
    ]
    assert 52 <= sum(noise) <= 60  # 57 on average


def test_a_difference_is_seen_and_reported() -> None:
    found = compare(report(drawn(0.0, 1)), report(drawn(0.2, 2)))
    assert not found.reward.is_noise and found.reward.difference > 0
    assert found.reward.low is not None and found.reward.low > 0
    assert found.verdict().startswith("B is better than A by +0.")
    assert "more than noise" in found.verdict()
    back = compare(report(drawn(0.2, 2)), report(drawn(0.0, 1)))
    assert back.verdict().startswith("B is worse than A by -0.")
    assert back.reward.p == found.reward.p


def test_noise_is_reported_with_the_difference_that_would_have_shown() -> None:
    found = compare(report(drawn(0.0, 1)), report(drawn(0.0, 4)))
    assert found.reward.is_noise
    assert "may well be noise" in found.verdict() and "show differences of about 0.08" in found.verdict()


def test_tasks_are_paired_so_that_their_difficulty_is_no_noise() -> None:
    """The same small gain at each task, among tasks that differ by far more."""
    base = [[float(place)] for place in range(30)]
    better = [[value + 0.01] for (value,) in base]
    assert not compare(report(base), report(better)).reward.is_noise


def test_a_report_against_itself_is_all_the_same() -> None:
    same = report(drawn(0.0, 1))
    found = compare(same, same)
    assert (found.reward.difference, found.reward.p, found.better, found.worse) == (0.0, 1.0, (), ())


def test_tasks_of_one_only_and_faults_are_left_out_and_reported() -> None:
    found = compare(report([[1.0], [0.0], [None]]), report([[1.0], [1.0], [0.0], [0.0]]))
    assert (found.tasks, found.left_out) == (2, 2)
    assert found.better == (("test:1", 0.0, 1.0),)
    assert found.notes == ("1 of 3 episodes of A were lost to faults",)


def test_settings_that_differ_are_reported() -> None:
    found = compare(report([[1.0]], max_turns=4), report([[1.0]], max_turns=8))
    assert found.notes == ("max_turns differs: 4 in A, 8 in B",)


def test_reports_with_nothing_in_common_are_refused() -> None:
    with pytest.raises(EvaluationError, match="split train, and B of sums, split test"):
        compare(report([[1.0]], split="train"), report([[1.0]]))
    with pytest.raises(EvaluationError, match="no task in common"):
        compare(report([[None]]), report([[1.0]]))


def test_a_file_that_is_no_report_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(EvaluationError, match="cannot read"):
        load_report(path)
    path.write_text('{"name": "x"}')
    with pytest.raises(EvaluationError, match="is no report of an evaluation: run: Field required"):
        load_report(path)
    whole = report([[1.0]])
    path.write_text(whole.model_dump_json())
    assert load_report(path) == whole
