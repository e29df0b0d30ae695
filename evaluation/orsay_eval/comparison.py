"""Comparison of two reports: test whether their difference is more than noise.

Tasks differ in difficulty far more than models do, so the two are compared task by task, on the tasks that
both have, as Miller advises (arXiv:2411.00640). The p-value is that of a permutation test: if the two were
the same, each task could as well have had its two results swapped (Fisher, The Design of Experiments, 1935,
section 21). All swaps are tried where they are few; else they are drawn at random, and p = (b + 1) / (m +
1) for b of m draws (Phipson and Smyth, Stat. Appl. Genet. Mol. Biol. 9, 2010). It supposes nothing about
how rewards are distributed. The interval of the difference is the mean of the tasks' differences ± t * its
standard error.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from orsay_protocol.evaluation import EvaluatedEpisode, EvaluationReport
from orsay_protocol.student import t_quantile
from pydantic import ValidationError

from . import exact
from .errors import EvaluationError
from .statistics import standard_error
from .summary import by_task

__all__ = ["Comparison", "Difference", "compare", "load_report", "swap_test"]

_NOISE = 0.05
_EXACT_TASKS = 13  # 8192 ways to swap
_DRAWS = 20_000
_WORK = 5_000_000  # draws times tasks
_POWER = 0.8416  # z of 80%
_LARGE = 2.0**900  # from there on, sums may overflow
_SMALLER = 128  # binary digits, and 2 ** 128 values may be added up
_PLAYED_ALIKE = ("reward", "unscored", "success", "max_turns", "nudges", "images", "call_timeout_s")


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of one metric, B less A, on the tasks that both have."""

    a: float
    b: float
    low: float | None
    high: float | None
    p: float
    """Two-sided p-value: probability of a difference at least this large if A and B were the same."""
    detectable: float | None
    """The difference that as many tasks would show in 80% of such comparisons."""

    @property
    def difference(self) -> float:
        return self.b - self.a

    @property
    def is_noise(self) -> bool:
        """True if the difference may be noise: p is 0.05 or more."""
        return self.p >= _NOISE


@dataclass(frozen=True, slots=True)
class Comparison:
    """A against B."""

    a: EvaluationReport
    b: EvaluationReport
    tasks: int
    """Tasks that both evaluations have scored."""
    left_out: int
    """Tasks that only one of them has scored."""
    reward: Difference
    success: Difference
    better: tuple[tuple[str, float, float], ...]
    """Tasks that B does better, most changed first: the task, A's mean reward, B's."""
    worse: tuple[tuple[str, float, float], ...]
    notes: tuple[str, ...]
    """Notes on what makes the comparison less fair."""

    def verdict(self) -> str:
        """The result of the comparison in one sentence."""
        found = self.reward
        size = f"{found.difference:+.4g}"
        if found.low is not None:
            size += f" (95% interval {found.low:+.4g} to {found.high:+.4g})"
        if found.is_noise:
            text = f"The difference of {size} may well be noise (p = {found.p:.2g})."
            if found.detectable:
                text += f" So many tasks show differences of about {found.detectable:.2g} and more."
            return text
        which = "better" if found.difference > 0 else "worse"
        return f"B is {which} than A by {size}, which is more than noise (p = {found.p:.2g})."


def compare(a: EvaluationReport, b: EvaluationReport) -> Comparison:
    """Compare B with A. Raises EvaluationError where the two have nothing in common."""
    if (a.environment, a.split) != (b.environment, b.split):
        raise EvaluationError(
            f"A is of {a.environment}, split {a.split}, and B of {b.environment}, split {b.split}: there is "
            "nothing to compare"
        )
    ours, theirs = by_task(a.episodes), by_task(b.episodes)
    common = [task for task in ours if task in theirs]
    if not common:
        raise EvaluationError("A and B have no task in common that both have scored")

    def means(
        of: Callable[[EvaluatedEpisode], float], which: dict[str, list[EvaluatedEpisode]]
    ) -> list[float]:
        return [exact.mean([of(episode) for episode in which[task]]) for task in common]

    reward_a, reward_b = means(_reward, ours), means(_reward, theirs)
    changes = [
        (task, one, other)
        for task, one, other in zip(common, reward_a, reward_b, strict=True)
        if one != other
    ]
    changes.sort(key=lambda change: (change[1] - change[2], change[0]))
    return Comparison(
        a=a,
        b=b,
        tasks=len(common),
        left_out=len(ours.keys() ^ theirs.keys()),
        reward=_difference(reward_a, reward_b),
        success=_difference(means(_success, ours), means(_success, theirs)),
        better=tuple(change for change in changes if change[2] > change[1]),
        worse=tuple(change for change in reversed(changes) if change[2] < change[1]),
        notes=tuple(_notes(a, b)),
    )


def load_report(path: str | os.PathLike[str]) -> EvaluationReport:
    """The report in a file. Raises EvaluationError for anything else."""
    try:
        return EvaluationReport.model_validate_json(Path(path).read_bytes())
    except OSError as exc:
        raise EvaluationError(f"cannot read {path}: {exc.strerror}") from exc
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise EvaluationError(f"{path} is no report of an evaluation: {where}: {first['msg']}") from exc


def swap_test(differences: Sequence[float], *, seed: int = 0) -> float:
    """p of the mean difference, two-sided; see the module."""
    changed = [value for value in differences if value != 0]
    if not changed:
        return 1.0
    seen = abs(math.fsum(changed))
    edge = seen * (1 - 1e-9)  # rounding must not make equal sums differ
    if len(changed) <= _EXACT_TASKS:
        ways = [
            abs(math.fsum(sign * value for sign, value in zip(signs, changed, strict=True)))
            for signs in product((1, -1), repeat=len(changed))
        ]
        return sum(way >= edge for way in ways) / len(ways)
    rng = random.Random(seed)
    draws = max(1000, min(_DRAWS, _WORK // len(changed)))
    total = math.fsum(changed)
    beyond = 0
    for _ in range(draws):
        bits = rng.getrandbits(len(changed))
        swapped = sum(value for position, value in enumerate(changed) if bits >> position & 1)
        beyond += abs(total - 2 * swapped) >= edge
    return (beyond + 1) / (draws + 1)


def _difference(a: Sequence[float], b: Sequence[float]) -> Difference:
    n = len(a)
    # Sums and differences of large rewards are beyond a float: powers of two are taken out, which is exact.
    down = _SMALLER if max(map(abs, (*a, *b))) > _LARGE else 0
    differences = [math.ldexp(other, -down) - math.ldexp(one, -down) for one, other in zip(a, b, strict=True)]
    mean = math.fsum(differences) / n
    low = high = detectable = None
    if n > 1 and (error := standard_error(differences)) > 0:
        t = t_quantile(n - 1)
        found = [_up(value, down) for value in (mean - t * error, mean + t * error, (t + _POWER) * error)]
        if all(map(math.isfinite, found)):
            low, high, detectable = found
    return Difference(
        exact.mean(a), exact.mean(b), low, high, p=swap_test(differences), detectable=detectable
    )


def _up(value: float, exponent: int) -> float:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def _reward(episode: EvaluatedEpisode) -> float:
    assert episode.reward is not None
    return episode.reward


def _success(episode: EvaluatedEpisode) -> float:
    return float(bool(episode.success))


def _notes(a: EvaluationReport, b: EvaluationReport) -> list[str]:
    changed = [name for name in _PLAYED_ALIKE if a.settings.get(name) != b.settings.get(name)]
    found = [
        f"{name} differs: {a.settings.get(name)!r} in A, {b.settings.get(name)!r} in B" for name in changed
    ]
    for which, report in (("A", a), ("B", b)):
        lost = report.summary.episodes - report.summary.scored
        if lost:
            found.append(f"{lost} of {report.summary.episodes} episodes of {which} were lost to faults")
        if report.summary.episodes < report.summary.planned:
            found.append(f"{which} is not complete: {report.summary.episodes} of {report.summary.planned}")
    return found
