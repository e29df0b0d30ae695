"""Retries with exponential backoff and jitter."""

from __future__ import annotations

import random

__all__ = ["Backoff", "backoff_s"]

_TRIES = 6
_FIRST_S = 0.1
_LONGEST_S = 2.0


class Backoff:
    """Backoff over a bounded number of failures in a row: about three seconds of waiting in all."""

    __slots__ = ("failures",)

    def __init__(self) -> None:
        self.failures = 0

    def next_s(self) -> float | None:
        """Count a failure; the seconds to wait before the next try, None when it was the last."""
        self.failures += 1
        if self.failures >= _TRIES:
            return None
        return backoff_s(self.failures, _LONGEST_S)


def backoff_s(failures: int, longest_s: float) -> float:
    """Twice as long after each failure, and never the same for all who wait."""
    return float(min(_FIRST_S * 2 ** min(failures - 1, 20), longest_s) * (0.75 + 0.5 * random.random()))
