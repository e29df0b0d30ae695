from collections.abc import Callable

import pytest
from orsay_eval import EvaluatedEpisode, EvaluationReport, assert_mean
from spelling import SPELLING


@pytest.mark.orsay_tasks(SPELLING, at_least=0.8)
def test_the_model_spells(orsay_episodes: list[EvaluatedEpisode]) -> None:
    assert any(episode.success for episode in orsay_episodes)


def test_the_model_is_surely_better_than_chance(orsay_evaluate: Callable[..., EvaluationReport]) -> None:
    report = orsay_evaluate(SPELLING)
    assert_mean(report, 0.1, surely=True)
