"""Groups of a batch: the rollouts that a trainer compares with each other, by their positions.

TRL forms them by position alone: each ``num_generations`` rollouts in a row are one group, counted over the
batches of all processes, and two groups in a row may play one task. A group may begin in one process and end
in another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Groups", "generations", "groups_of", "require_one_task"]


@dataclass(frozen=True, slots=True)
class Groups:
    """A process's ``count`` rollouts in groups of ``size``; its position 0 is position ``first`` of all."""

    count: int
    size: int
    first: int = 0

    @property
    def are_whole(self) -> bool:
        """True if no group has rollouts in two processes; equal in all processes."""
        return self.count % self.size == 0

    def has(self, position: int) -> bool:
        """True if a global position belongs to this process."""
        return self.first <= position < self.first + self.count

    def local(self, position: int) -> int:
        """The local position of a global one."""
        return position - self.first

    def number(self, position: int) -> int:
        """The global group number of a local position, from 0."""
        return (self.first + position) // self.size

    def here(self) -> dict[int, list[int]]:
        """Local positions by group; the first and the last group may extend to other processes."""
        found: dict[int, list[int]] = {}
        for position in range(self.count):
            found.setdefault(self.number(position), []).append(position)
        return found


def generations(trainer: Any) -> int | None:
    """Current group size: in an evaluation ``num_generations_eval``. None without a GRPO trainer."""
    training = getattr(getattr(trainer, "model", None), "training", True)
    size = getattr(trainer, "num_generations" if training else "num_generations_eval", None)
    return size if isinstance(size, int) and size > 0 else None


def groups_of(
    count: int, trainer: Any, num_generations: Any = None, *, may_end_early: bool = False
) -> Groups:
    """The groups of a batch of ``count`` rollouts of a trainer.

    ``num_generations`` is used without a trainer. Raises ValueError without a group size, and if the batches
    of all processes are not whole groups, unless the last ``may_end_early``.
    """
    size = generations(trainer)
    if size is None and isinstance(num_generations, int) and not isinstance(num_generations, bool):
        size = num_generations
    if size is None or size < 1:
        raise ValueError(
            "the size of a group of rollouts is unknown: there is no log_metric of a trainer, as TRL's "
            "GRPOTrainer hands it over. Pass num_generations=…, the number of rollouts in each group"
        )
    accelerator = getattr(trainer, "accelerator", None)
    processes, index = (
        (1, 0) if accelerator is None else (accelerator.num_processes, accelerator.process_index)
    )
    if count * processes % size and not may_end_early:
        raise ValueError(
            f"{count} rollouts in each of {processes} processes are no whole groups of {size}: make the "
            "batch size times the number of processes a multiple of num_generations (in evaluations: of "
            "num_generations_eval)"
        )
    return Groups(count=count, size=size, first=index * count)


def require_one_task(number: int, tasks: Sequence[str]) -> None:
    """Raises ValueError if the rollouts of a group play several tasks."""
    different = sorted(set(tasks))
    if len(different) > 1:
        raise ValueError(
            f"group {number} of the batch plays {len(different)} tasks: {', '.join(different)}. A trainer "
            "compares each num_generations rollouts in a row, so each task must be there so often in a row"
        )
