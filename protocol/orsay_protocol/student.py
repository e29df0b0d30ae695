"""Quantiles of Student's t distribution, so that server and client report the same intervals."""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["Z", "t_quantile"]

Z = 1.959963984540054
"""The 97.5% quantile of the standard normal distribution."""


@lru_cache(maxsize=1024)
def t_quantile(degrees: int) -> float:
    """The 97.5% quantile of Student's distribution with that many degrees of freedom, at least 1.

    Up to 200 by bisection of the distribution's finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4), beyond
    by the expansion around the normal quantile (26.7.5), which is exact to nine digits there.
    """
    if degrees > 200:
        z, v = Z, float(degrees)
        first = (z**3 + z) / 4
        second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        return z + first / v + second / v**2 + third / v**3
    low, high = Z, 13.0  # the quantile of one degree is 12.7
    for _ in range(60):
        middle = (low + high) / 2
        if _central_share(middle, degrees) < 0.95:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _central_share(t: float, degrees: int) -> float:
    """The probability to lie between ``-t`` and ``t``."""
    angle = math.atan(t / math.sqrt(degrees))
    square = math.cos(angle) ** 2
    if degrees == 1:
        return 2 * angle / math.pi
    odd = degrees % 2
    term = total = math.cos(angle) if odd else 1.0
    for k in range(2 + odd, degrees - 1, 2):
        term *= square * (k - 1) / k
        total += term
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
