"""What one environment and several combined have in common: the slots of a trainer, filled from rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from .trainer import dataset
from .trainer.rewards import EnvironmentReward, GroupReward

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import TrainerCallback

    from .spec import EnvironmentSpec

__all__ = ["DATASETS", "Slots"]

DATASETS = ("eval_dataset", "rollout_dataset", "rollout_eval_dataset", "train_dataset")
"""What is made of the rows once, and never pickled."""


class Slots(ABC):
    """Base of ``EnvironmentSpec`` and ``Mixture``."""

    @abstractmethod
    def columns(self, which: Literal["train", "eval"]) -> dict[str, list[Any]]:
        """The columns of ``train_dataset`` or ``eval_dataset``, as lists."""

    @abstractmethod
    def members(self) -> Sequence[EnvironmentSpec]:
        """The environments, each by its spec."""

    @abstractmethod
    def member(self, row: Mapping[str, Any]) -> EnvironmentSpec:
        """The one in which a row is played."""

    @cached_property
    def train_dataset(self) -> Dataset:
        """A row for each training task: ``prompt`` (one empty user message), ``task_index``, ``task_split``,
        and the fields of the task; of several environments also ``environment``."""
        return dataset.to_dataset(self.columns("train"))

    @cached_property
    def eval_dataset(self) -> Dataset:
        """The same for the tasks of ``eval_split``."""
        return dataset.to_dataset(self.columns("eval"))

    @cached_property
    def rollout_dataset(self) -> Dataset:
        """The training tasks for a rollout function: it finds the task of a prompt in the message."""
        return dataset.to_dataset(dataset.for_rollouts(self.columns("train")))

    @cached_property
    def rollout_eval_dataset(self) -> Dataset:
        """The tasks of ``eval_split`` in the same way."""
        return dataset.to_dataset(dataset.for_rollouts(self.columns("eval")))

    @property
    def reward_funcs(self) -> EnvironmentReward:
        """The episodes' rewards, each by its environment's rules; also grades plain messages, and logs."""
        return EnvironmentReward()

    @property
    def group_reward(self) -> GroupReward:
        """The environment's comparison of a group's rollouts, for ``reward_funcs=[…, spec.group_reward]``."""
        return GroupReward()

    def callback(self) -> TrainerCallback:
        """Tells sessions the step, and ends them with the training; without it they end with the process."""
        from .trainer.callback import SpecCallback  # needs transformers, which is an extra

        return SpecCallback(self.members())
