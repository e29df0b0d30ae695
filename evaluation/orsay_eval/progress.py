"""Progress of an evaluation, for a bar or a log."""

from __future__ import annotations

from dataclasses import dataclass

from orsay_protocol.evaluation import EvaluatedEpisode

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an evaluation. ``last`` is the episode that just ended, None at the beginning."""

    planned: int
    done: int
    resumed: int
    """Episodes of ``done`` that an earlier part of the evaluation played."""
    scored: int
    lost: int
    reward_sum: float
    successes: int
    tokens: int
    seconds: float
    """Seconds since this part began."""
    last: EvaluatedEpisode | None = None

    @property
    def mean(self) -> float | None:
        """Mean of the rewards so far."""
        return self.reward_sum / self.scored if self.scored else None

    @property
    def per_minute(self) -> float:
        """Episodes that end in a minute."""
        return 60 * (self.done - self.resumed) / self.seconds if self.seconds > 0 else 0.0
