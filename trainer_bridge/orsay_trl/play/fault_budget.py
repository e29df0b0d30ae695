"""Budget of rollouts that a run may lose to faults."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from .episode import Episode

__all__ = ["FaultBudget", "TooManyFaults"]

_WINDOW = 64
_LEAST = 8  # a share of fewer episodes is noise
_LEAST_BATCH = 2  # a single one is judged with earlier ones


class TooManyFaults(RuntimeError):
    """More than ``max_fault_share`` of the rollouts were lost to faults; the message names them."""


class FaultBudget:
    """Raises TooManyFaults when the share of lost episodes is over ``max_share``."""

    def __init__(self, max_share: float) -> None:
        self._max_share = max_share
        self._last: deque[tuple[str | None, str]] = deque(maxlen=_WINDOW)

    def check_batch(self, episodes: Sequence[Episode]) -> None:
        """Check a batch of rollouts; a single one, as in an evaluation, like ``check_latest``."""
        if len(episodes) < _LEAST_BATCH:
            self.check_latest(episodes)
            return
        self._judge([(episode.fault, episode.fault_message) for episode in episodes])

    def check_latest(self, episodes: Sequence[Episode]) -> None:
        """Check the last 64 rollouts, for trainers without batches, from the eighth on."""
        self._last.extend((episode.fault, episode.fault_message) for episode in episodes)
        if len(self._last) >= _LEAST:
            self._judge(list(self._last))

    def _judge(self, ends: Sequence[tuple[str | None, str]]) -> None:
        lost = [(fault, message) for fault, message in ends if fault is not None]
        if not lost or len(lost) <= self._max_share * len(ends):
            return
        classes = ", ".join(f"{count} {fault}" for fault, count in Counter(f for f, _ in lost).most_common())
        raise TooManyFaults(
            f"{len(lost)} of {len(ends)} rollouts were lost to faults ({classes}), more than the share of "
            f"{self._max_share:g} that max_fault_share allows. The last one: {lost[-1][1]} "
            "Look at the environment server's log; the labels there name the rollouts."
        )
