"""Means, sums, intervals and comparisons of numbers of any size."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orsay_eval import compare
from orsay_eval.exact import mean, total
from orsay_eval.statistics import estimate, standard_error
from orsay_protocol.student import t_quantile

from tests.evaluation.test_comparison import report

ANY = st.floats(allow_nan=False, allow_infinity=False)
SMALLEST = math.ulp(0.0)
LARGE = st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=20)


@given(st.lists(ANY, min_size=1, max_size=20))
def test_means_and_sums_are_those_of_fractions(values: list[float]) -> None:
    exact = sum(map(Fraction, values))
    assert mean(values) == pytest.approx(float(exact / len(values)), rel=1e-15)
    try:
        wanted = float(exact)
    except OverflowError:
        with pytest.raises(OverflowError):
            total(values)
    else:
        assert total(values) == wanted


@given(LARGE, st.sampled_from([0.0, 1e15]))
def test_a_standard_error_is_that_of_exact_arithmetic(values: list[float], offset: float) -> None:
    moved = [value + offset for value in values]
    spread = statistics.variance(map(Fraction, moved)) / len(moved)
    scale = max(map(abs, moved)) or 1.0
    wanted = math.sqrt(spread / Fraction(scale) ** 2) * scale
    assert standard_error(moved) == pytest.approx(wanted, rel=1e-9, abs=max(scale * 1e-15, SMALLEST))


def test_an_interval_has_no_bounds_beyond_a_float() -> None:
    found = estimate([[1.7e308], [-1.7e308], [1.7e308]])
    assert found is not None
    assert found.mean == pytest.approx(1.7e308 / 3) and found.low is None and found.high is None


@pytest.mark.parametrize("scale", [1.0, 1e15, 1e300, 1e-200])
def test_a_comparison_says_the_same_at_every_scale(scale: float) -> None:
    one = [[0.0, 0.5], [0.25, 0.25], [1.0, 0.5], [0.0, 0.0], [0.75, 0.0]]
    other = [[0.5, 0.5], [0.25, 0.75], [1.0, 1.0], [0.0, 0.5], [0.75, 0.25]]
    small = compare(report(one), report(other)).reward
    found = compare(
        report([[value * scale for value in task] for task in one]),
        report([[value * scale for value in task] for task in other]),
    ).reward
    assert found.p == small.p
    for name in ("a", "b", "difference", "low", "high", "detectable"):
        assert getattr(found, name) == pytest.approx(getattr(small, name) * scale, rel=1e-9)


def test_a_comparison_of_the_largest_rewards_ends() -> None:
    found = compare(report([[1.7e308], [1.0], [1.7e308]]), report([[-1.7e308], [2.0], [-1.7e308]]))
    assert (found.reward.low, found.reward.high, found.reward.detectable) == (None, None, None)
    assert math.isfinite(found.reward.a) and math.isfinite(found.reward.p)
    assert "A by" in found.verdict() or "noise" in found.verdict()


@pytest.mark.parametrize("freedom", [10**10, 10**15, 10**18])
def test_a_quantile_of_many_values_is_the_normal_one(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(statistics.NormalDist().inv_cdf(0.975), abs=1e-9)
