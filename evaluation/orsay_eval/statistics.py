"""Statistics of a sample of tasks and attempts: means, pass@k, and their confidence intervals.

Attempts at one task are correlated, so tasks are the unit: every metric is a mean over tasks, and its
interval comes from the variance between tasks. With equal numbers of attempts, this is the clustered standard
error of Miller, "Adding Error Bars to Evals" (arXiv:2411.00640) with the small-sample factor G / (G - 1) for
G tasks. Faults leave tasks with fewer attempts; a task still counts once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from orsay_protocol.evaluation import Estimate, PassAtK, Quantiles
from orsay_protocol.student import t_quantile

from . import exact

__all__ = ["estimate", "pass_at_k", "pass_estimate", "quantiles", "standard_error"]

_LEVEL = 0.95


def estimate(per_task: Sequence[Sequence[float]]) -> Estimate | None:
    """Mean over tasks of each task's mean, with a 95% interval; None without any value.

    For values that are all 0 or 1 it is an interval of a proportion, which stays between 0 and 1 and does not
    shrink to nothing where all are the same: see ``_proportion``. Otherwise it is mean ± t * standard
    error, with Student's t of G - 1 degrees of freedom. There is none for a single task, and none where all
    values are one and the same: then the spread is unknown.
    """
    tasks = [values for values in per_task if values]
    if not tasks:
        return None
    means = [exact.mean(values) for values in tasks]
    mean = exact.mean(means)
    if len(means) < 2:
        return Estimate(mean=mean)
    if all(value in (0.0, 1.0) for values in tasks for value in values):
        low, high = _proportion(means, episodes=sum(map(len, tasks)))
        return Estimate(mean=mean, low=low, high=high)
    if len({value for values in tasks for value in values}) == 1:
        return Estimate(mean=mean)
    reach = t_quantile(len(means) - 1) * standard_error(means)
    if not math.isfinite(mean - reach) or not math.isfinite(mean + reach):
        return Estimate(mean=mean)
    return Estimate(mean=mean, low=mean - reach, high=mean + reach)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that ``k`` attempts, drawn from ``n`` of which ``c`` are right, include a right one.

    The unbiased estimator 1 - C(n-c, k) / C(n, k) of Chen et al., "Evaluating Large Language Models
    Trained on Code" (arXiv:2107.03374), equation 1; 1 - (1 - c/n)^k would be too low. Raises ValueError
    for k > n.
    """
    if not 1 <= k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@{k} needs {k} attempts at least, and 0 to n right ones: n={n}, c={c}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_estimate(right: Sequence[tuple[int, int]], k: int) -> PassAtK | None:
    """pass@k of tasks given as (attempts, right ones), with a 95% interval.

    Tasks that faults left with fewer than ``k`` attempts take no part; None where no task has enough.
    """
    enough = [(n, c) for n, c in right if n >= k]
    if not enough:
        return None
    values = [pass_at_k(n, c, k) for n, c in enough]
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return PassAtK(k=k, mean=mean)
    low, high = _proportion(values, episodes=sum(n for n, _ in enough))
    return PassAtK(k=k, mean=mean, low=low, high=high)


def standard_error(means: Sequence[float]) -> float:
    """Standard error of the mean of independent values; 2 at least. Infinite where it is beyond a float."""
    mean = exact.mean(means)
    spread = math.hypot(*(value - mean for value in means))  # squares of large values would be infinite
    return spread / math.sqrt(len(means) * (len(means) - 1))


def quantiles(values: Sequence[float]) -> Quantiles | None:
    """Mean, median, 95th percentile and maximum; None without values."""
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        rank = share * (len(ordered) - 1)
        below = math.floor(rank)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (rank - below) * (ordered[above] - ordered[below])

    mean = exact.mean(ordered)
    return Quantiles(mean=mean, p50=at(0.5), p95=at(0.95), max=ordered[-1])


def _proportion(means: Sequence[float], *, episodes: int) -> tuple[float, float]:
    """Wilson's score interval for a proportion, with the effective number of values in place of the number.

    The effective number is p(1-p) / SE², between the number of tasks less one and that of episodes (Korn and
    Graubard, Survey Methodology 24, 1998); Franco et al., J. Survey Stat. and Methodology 7 (2019), find
    Wilson's form of it to cover well. Where all are right, or all wrong, there is no spread to go by, and the
    interval is the exact one of Clopper and Pearson (Biometrika 26, 1934) for as many values as there are
    tasks, as if attempts at one task added no information.
    """
    tasks = len(means)
    p = math.fsum(means) / tasks
    error = standard_error(means)
    if p <= 0:
        return 0.0, 1 - ((1 - _LEVEL) / 2) ** (1 / tasks)
    if p >= 1:
        return ((1 - _LEVEL) / 2) ** (1 / tasks), 1.0
    n = min(p * (1 - p) / error**2, float(episodes)) if error > 0 else float(episodes)
    t = t_quantile(tasks - 1)
    middle = (p + t * t / (2 * n)) / (1 + t * t / n)
    reach = t / (1 + t * t / n) * math.sqrt(p * (1 - p) / n + t * t / (4 * n * n))
    return max(0.0, min(p, middle - reach)), min(1.0, max(p, middle + reach))
