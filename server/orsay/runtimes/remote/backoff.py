"""Retries with exponential backoff and jitter."""

from __future__ import annotations

import random

__all__ = ["Backoff", "backoff_s"]

_TRIES = 6
_FIRST_S = 0.1
_LONGEST_S = 2.0
_jitter = random.SystemRandom().random  # the shared generator may be seeded by environments


class Backoff:
    """Exponential backoff for a bounded number of consecutive failures, about three seconds in total."""

    __slots__ = ("failures",)

    def __init__(self) -> None:
        self.failures = 0

    def next_s(self) -> float | None:
        """Count a failure; returns the delay before the next attempt, or None after the last."""
        self.failures += 1
        if self.failures >= _TRIES:
            return None
        return backoff_s(self.failures, _LONGEST_S)


def backoff_s(failures: int, longest_s: float) -> float:
    """Delay that doubles with each failure, with random jitter."""
    return float(min(_FIRST_S * 2 ** min(failures - 1, 20), longest_s) * (0.75 + 0.5 * _jitter()))
