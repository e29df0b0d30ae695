"""Sessions follow the training: they are told its step, and end with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

if TYPE_CHECKING:
    from ..spec import EnvironmentSpec

__all__ = ["SpecCallback"]


class SpecCallback(TrainerCallback):  # type: ignore[misc]
    """Labels sessions with the trainer's step, and ends all of them when training ends."""

    def __init__(self, specs: Sequence[EnvironmentSpec]) -> None:
        self._specs = list(specs)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the trainer."""
        for spec in self._specs:
            spec.serve_step(args, int(state.global_step), kwargs.get("model"))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the trainer; not when training fails, where the process's end closes sessions."""
        for spec in self._specs:
            spec.stage.close_episodes()
