"""Trainer callback that labels sessions with the training step, and ends them with the training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import TrainerCallback

from ..play.environment import LiveEnvironment
from ._trl import label_sessions

__all__ = ["EnvironmentCallback"]


class EnvironmentCallback(TrainerCallback):  # type: ignore[misc]
    """Labels sessions with the trainer's step, and ends all of them when training ends."""

    def __init__(self, environments: Sequence[LiveEnvironment]) -> None:
        self._environments = list(environments)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hook of the trainer at the beginning of a step."""
        label_sessions(self._environments, state=state, args=args, model=kwargs.get("model"))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hook of the trainer at the end of training; if that fails, the process's end closes sessions."""
        for environment in self._environments:
            environment.pool.close_episodes()
