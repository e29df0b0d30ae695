"""Metrics of a batch of rollouts in a trainer's log. The names are explained in docs/training.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import get_args

from .loop import Rollout, StopReason

__all__ = ["log_rollouts"]


def log_rollouts(rollouts: Sequence[Rollout], log_metric: Callable[[str, float], None]) -> None:
    """Log each rollout's numbers; TRL averages them over the batch and over all processes."""
    for rollout in rollouts:
        log_metric("rollout/turns", float(rollout.turns))
        log_metric("rollout/unreadable_calls", float(rollout.unreadable_calls))
        log_metric("rollout/sampling_s", rollout.sampling_s)
        log_metric("rollout/environment_s", rollout.environment_s)
        for reason in get_args(StopReason):
            log_metric(f"rollout/stop/{reason}", float(rollout.stop_reason == reason))
