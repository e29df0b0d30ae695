"""``Evaluation``: one definition for ``orsay eval``, for tests and for training."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .reward import Discounted, RewardPolicy, check_reward

__all__ = ["Evaluation", "parse_tasks"]

_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+)|\s*:\s*(\d+))?")
_MOST = 1_000_000


@dataclass(frozen=True)
class Evaluation:
    """Definition of an evaluation: tasks, attempts, and scoring. ``evaluate`` adds the server and the policy.

    Args:
        environment: Its name on the server; None is the server's first.
        split: Where the tasks come from.
        tasks: How many, from the start of the split; or their indices; None takes the whole split.
        k: Attempts at each task.
        sample: Draw as many ``tasks`` at random from the split, by this seed, rather than its first.
        reward: What the rewards of an episode's calls amount to: ``last``, ``sum``, ``max``, ``mean``,
            ``discounted(gamma)``, or a function of the episode.
        unscored: Reward of an episode in which no call was scored; None leaves it out of the means.
        success: From which reward on an episode counts as solved.
        max_turns: Answers of the model per episode.
        nudges: How often a model that answers without calling a tool is asked to go on, before that ends
            the episode.
        images: Show the model images; without it, their names in the text.
        call_timeout_s: Limit for one call, besides the server's; a call over it is a fault.
        retries: How often an episode goes on with a fresh session after faults of the environment that a
            fresh session may cure.

    Raises ValueError for contradictory or invalid arguments.
    """

    environment: str | None = None
    split: str = "test"
    tasks: int | Sequence[int] | None = None
    k: int = 1
    sample: int | None = None
    reward: RewardPolicy = "last"
    unscored: float | None = 0.0
    success: float = 1.0
    max_turns: int = 64
    nudges: int = 0
    images: bool = True
    call_timeout_s: float | None = None
    retries: int = 2

    def __post_init__(self) -> None:
        check_reward(self.reward)
        if isinstance(self.tasks, int):
            if self.tasks < 1:
                raise ValueError(f"tasks must be at least 1, not {self.tasks}")
        elif self.tasks is not None:
            indices = tuple(int(index) for index in self.tasks)
            if not indices or min(indices) < 0:
                raise ValueError("tasks must name one index at least, and none below 0")
            if len(set(indices)) < len(indices):
                raise ValueError("tasks names an index twice; k is the number of attempts at each")
            object.__setattr__(self, "tasks", indices)  # hashable, whatever sequence was given
        if self.sample is not None and not isinstance(self.tasks, int):
            raise ValueError("sample draws at random: give their number as tasks=N")
        if min(self.k, self.max_turns) < 1 or min(self.nudges, self.retries) < 0:
            raise ValueError("k and max_turns must be at least 1, nudges and retries at least 0")
        if not all(math.isfinite(x) for x in (self.success, self.unscored or 0.0)):
            raise ValueError("success and unscored must be finite numbers")
        if self.call_timeout_s is not None and self.call_timeout_s <= 0:
            raise ValueError("call_timeout_s must be greater than 0")

    def indices(self, count: int | None = None) -> list[int]:
        """Indices of the tasks in a split with ``count`` tasks; None: unknown.

        Raises ValueError if the count is necessary, or the split lacks some of them.
        """
        tasks = self.tasks
        if isinstance(tasks, int) or tasks is None:
            return self._from_start(tasks, count)
        missing = [index for index in tasks if count is not None and index >= count]
        if missing:
            raise ValueError(f"split {self.split!r} has {count} tasks, and none at {missing[0]}")
        return list(tasks)

    def _from_start(self, tasks: int | None, count: int | None) -> list[int]:
        if count is None:
            if tasks is None or self.sample is not None:
                raise ValueError("the split must be asked for its number of tasks: name the tasks instead")
            return list(range(tasks))
        if tasks is None and count > _MOST:
            raise ValueError(f"split {self.split!r} has {count} tasks: give the number to play")
        wanted = count if tasks is None else min(tasks, count)
        if self.sample is not None:
            return sorted(random.Random(self.sample).sample(range(count), wanted))
        return list(range(wanted))

    def only(self, tasks: Sequence[int]) -> Evaluation:
        """The same, of these tasks."""
        return replace(self, tasks=tuple(tasks), sample=None)

    def spec_arguments(self, *, train: bool = False) -> dict[str, Any]:
        """Arguments of ``orsay_trl.EnvironmentSpec`` that mean the same.

        The evaluation's tasks become the spec's ``eval_dataset``, or with ``train`` those it trains on::

            spec = EnvironmentSpec(url, num_tasks=500, **evaluation.spec_arguments())

        Raises ValueError for tasks that ``eval_dataset`` cannot be: it takes a split from its start.
        """
        shared: dict[str, Any] = {
            "env_name": self.environment,
            "reward": self.reward,
            "unscored": self.unscored,
            "success": self.success,
            "images": self.images,
            "call_timeout_s": self.call_timeout_s,
            "retries": self.retries,
        }
        if self.sample is not None:
            raise ValueError("a spec takes tasks from the start of a split, or by index: name the tasks")
        if train:
            which = (
                {"num_tasks": self.tasks} if not isinstance(self.tasks, tuple) else {"indices": self.tasks}
            )
            return {**shared, "split": self.split, **which}
        if isinstance(self.tasks, tuple) and self.tasks != tuple(range(len(self.tasks))):
            raise ValueError("eval_dataset takes a split from its start: give tasks=N, or train=True")
        number = len(self.tasks) if isinstance(self.tasks, tuple) else self.tasks
        return {**shared, "eval_split": self.split, "eval_num_tasks": number}

    def settings(self) -> dict[str, Any]:
        """Settings of the measurement as JSON, without tasks and number of attempts."""
        reward = self.reward if isinstance(self.reward, str) else _name(self.reward)
        return {
            "reward": reward,
            "unscored": self.unscored,
            "success": self.success,
            "max_turns": self.max_turns,
            "nudges": self.nudges,
            "images": self.images,
            "call_timeout_s": self.call_timeout_s,
        }


def parse_tasks(text: str) -> list[int]:
    """Indices of ``3``, ``0,4,7``, ``0-9`` (with 9) and ``0:10`` (without 10), also mixed.

    Raises ValueError for anything else.
    """
    found: list[int] = []
    for part in (piece.strip() for piece in text.split(",")):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no task: use 3, 0,4,7, 0-9 or 0:10")
        first = int(match[1])
        stop = int(match[2]) + 1 if match[2] else int(match[3]) if match[3] else first + 1
        if not first < stop or stop - first > _MOST:
            raise ValueError(f"{part!r} is no range of tasks from its first to its last")
        found += range(first, stop)
    return list(dict.fromkeys(found))


def _name(reward: object) -> str:
    if isinstance(reward, Discounted):
        return str(reward)
    return str(getattr(reward, "__qualname__", reward))
