"""Exact sums and means of finite numbers, without overflow of intermediate sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

__all__ = ["mean", "total"]


def total(values: Sequence[float]) -> float:
    """The sum, rounded once. Raises OverflowError if it exceeds a float, ValueError for NaN."""
    try:
        return math.fsum(values)
    except OverflowError:
        return float(sum(map(Fraction, values)))


def mean(values: Sequence[float]) -> float:
    """The mean of at least one number; that of finite numbers is finite."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return float(sum(map(Fraction, values)) / len(values))
