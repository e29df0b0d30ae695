"""Episodes of an evaluation, from their rewards."""

from __future__ import annotations

from collections.abc import Sequence

from orsay_protocol.evaluation import EvaluatedEpisode

__all__ = ["episodes_of"]


def episodes_of(rewards: Sequence[Sequence[float | None]], *, split: str = "test") -> list[EvaluatedEpisode]:
    """Attempts whose task ``i`` has the rewards of row ``i``; None is a fault."""
    return [
        EvaluatedEpisode(
            task=f"{split}:{index}",
            split=split,
            index=index,
            attempt=attempt,
            reward=reward,
            success=None if reward is None else reward >= 1,
            fault="worker_lost" if reward is None else None,
        )
        for index, attempts in enumerate(rewards)
        for attempt, reward in enumerate(attempts)
    ]
