"""Means and shares with 95% intervals, from values or from a database's sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from orsay_protocol.student import Z, t_quantile

__all__ = ["Interval", "Moments", "finite", "mean_interval", "share_interval"]

_CLEAR = 1e-6  # share of the sum of squares that must be left without the mean's: fewer digits say too little


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its 95% interval; no bounds for a single value."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Moments:
    """Number of values, their mean, and the root of their summed squared distances from it.

    Sums of plain squares lose the spread of values that are far from 0, and overflow; these do neither, and
    two of them can be put together: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for
    computing sample variances", Stanford STAN-CS-79-773 (1979).
    """

    n: int = 0
    mean: float = 0.0
    spread: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Moments:
        """Moments of finite values; their mean is always finite, their spread may be infinite."""
        if not values:
            return cls()
        try:
            mean = math.fsum(values) / len(values)
        except OverflowError:  # of the sum; the mean fits
            mean = float(sum(map(Fraction, values)) / len(values))
        return cls(len(values), mean, math.hypot(*(value - mean for value in values)))

    @classmethod
    def from_sums(cls, n: int, total: float, squares: float, low: float, high: float) -> Moments | None:
        """Moments from the sums of ``n`` values, and the least and the greatest of them. None where these do
        not give the spread.
        """
        if n == 0:
            return cls()
        if low == high:
            return cls(n, low)
        left = squares - total * (total / n)
        return cls(n, total / n, math.sqrt(left)) if left > _CLEAR * squares else None

    @classmethod
    def from_whole_sums(cls, n: int, total: int, squares: int) -> Moments:
        """The same of whole numbers, whose sums are exact."""
        return cls() if n == 0 else cls(n, total / n, math.sqrt(max(0, n * squares - total * total) / n))

    def __add__(self, other: Moments) -> Moments:
        """Moments of the values of both."""
        n = self.n + other.n
        if not self.n or not other.n:
            return other if other.n else self
        apart = other.mean - self.mean
        if not math.isfinite(apart):
            mean = self.mean * (self.n / n) + other.mean * (other.n / n)
            return Moments(n, mean, math.inf)
        mean = self.mean + apart * (other.n / n)
        between = apart * math.sqrt(self.n * (other.n / n))
        return Moments(n, mean, math.hypot(self.spread, other.spread, between))


def finite(value: float | None) -> float | None:
    """The number, or None if it is not finite, which JSON cannot represent."""
    return value if value is not None and math.isfinite(value) else None


def mean_interval(found: Moments) -> Interval | None:
    """The mean of values with Student's interval.

    ``mean ± t(n - 1) * s / sqrt(n)``, where ``s`` has ``n - 1`` in its denominator: Student, "The probable
    error of a mean", Biometrika 6 (1908). None without values; no bounds where a float does not hold them.
    """
    n, mean = found.n, found.mean
    if n == 0:
        return None
    if n == 1:
        return Interval(mean, None, None)
    half = t_quantile(n - 1) * (found.spread / math.sqrt((n - 1) * n))
    if not math.isfinite(mean - half) or not math.isfinite(mean + half):
        return Interval(mean, None, None)
    return Interval(mean, mean - half, mean + half)


def share_interval(hits: int, n: int) -> Interval | None:
    """The share of ``hits`` among ``n`` with Wilson's score interval, which never leaves 0 to 1.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927). None
    without trials.
    """
    if n == 0:
        return None
    share = hits / n
    scale = 1 + Z * Z / n
    centre = (share + Z * Z / (2 * n)) / scale
    half = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n)) / scale
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == n else min(1.0, centre + half)
    return Interval(share, low, high)
