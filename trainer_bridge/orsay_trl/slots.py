"""Slots of a TRL trainer, filled from rows: for one environment and for several combined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from .play.environment import Environments
from .trainer import dataset
from .trainer.rewards import EnvironmentReward, GroupReward

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import TrainerCallback

__all__ = [
    "DATASETS",
    "Part",
    "Rows",
    "callback",
    "eval_dataset",
    "group_reward",
    "reward_funcs",
    "rollout_dataset",
    "rollout_eval_dataset",
    "train_dataset",
]

DATASETS = ("eval_dataset", "rollout_dataset", "rollout_eval_dataset", "train_dataset")
"""Names of the slots that are computed once from the rows, and never pickled."""

Part: TypeAlias = Literal["train", "eval"]


class Rows(Protocol):
    """Source of the rows: ``EnvironmentSpec`` or ``Mixture``."""

    def columns(self, which: Part) -> dict[str, list[Any]]:
        """The columns of ``train_dataset`` or ``eval_dataset``, as lists."""
        ...


def train_dataset(rows: Rows) -> Dataset:
    """A row for each training task: ``prompt`` (one empty user message), ``task_index``, ``task_split``,
    and the fields of the task; of several environments also ``environment``."""
    return dataset.to_dataset(rows.columns("train"))


def eval_dataset(rows: Rows) -> Dataset:
    """The same for the tasks of ``eval_split``."""
    return dataset.to_dataset(rows.columns("eval"))


def rollout_dataset(rows: Rows) -> Dataset:
    """The training tasks for a rollout function, with the task in the prompt's message."""
    return dataset.to_dataset(dataset.for_rollouts(rows.columns("train")))


def rollout_eval_dataset(rows: Rows) -> Dataset:
    """The same for the tasks of ``eval_split``."""
    return dataset.to_dataset(dataset.for_rollouts(rows.columns("eval")))


def reward_funcs(rows: Rows) -> EnvironmentReward:
    """The episodes' rewards, each by its environment's rules; also grades plain messages, and logs."""
    return EnvironmentReward()


def group_reward(rows: Rows) -> GroupReward:
    """The environment's comparison of a group's rollouts, for ``reward_funcs=[…, spec.group_reward]``."""
    return GroupReward()


def callback(environments: Environments) -> TrainerCallback:
    """Callback that labels sessions with the step, and ends them when training ends."""
    from .trainer.callback import EnvironmentCallback  # needs transformers, which is an extra

    return EnvironmentCallback(environments.members())
