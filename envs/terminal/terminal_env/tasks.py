"""Splits of computed tasks. A task names its template and its number; the problem is made from both.

``train`` and ``test`` have the same templates, and seeds of their own. Templates follow each
other, so that any stretch of tasks has all kinds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import overload

from orsay import JSONObject

from .draw import Draw
from .kinds import TEMPLATES
from .problem import Problem

__all__ = ["NUMBERS", "SPLITS", "Tasks", "own_task", "problem_of"]

NUMBERS = {"train": 250, "test": 25}
"""Tasks of each template, by split."""
_LEVELS = 3


class Tasks(Sequence[JSONObject]):
    """The tasks of a split, each made when it is asked for."""

    def __init__(self, split: str) -> None:
        self.split = split

    def __len__(self) -> int:
        return NUMBERS[self.split] * len(TEMPLATES)

    @overload
    def __getitem__(self, index: int) -> JSONObject: ...

    @overload
    def __getitem__(self, index: slice) -> list[JSONObject]: ...

    def __getitem__(self, index: int | slice) -> JSONObject | list[JSONObject]:
        if isinstance(index, slice):
            return [self._task(at) for at in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.split} has {len(self)} tasks")
        return self._task(index % len(self))

    def _task(self, index: int) -> JSONObject:
        number, at = divmod(index, len(TEMPLATES))
        template = TEMPLATES[at]
        return {
            "id": f"terminal-{self.split}-{index}",
            "split": self.split,
            "index": index,
            "kind": template.kind,
            "template": template.name,
            "level": 1 + number % _LEVELS,
        }


SPLITS = {split: Tasks(split) for split in NUMBERS}


def own_task(task_spec: JSONObject) -> JSONObject:
    """``task_spec`` as it is listed here. Raises ValueError for any other."""
    split, index = task_spec.get("split"), task_spec.get("index")
    if isinstance(split, str) and split in SPLITS and type(index) is int and 0 <= index < len(SPLITS[split]):
        task = SPLITS[split][index]
        if task == dict(task_spec):
            return task
    raise ValueError("not a task of the terminal environment; take one from its splits by index")


def problem_of(task: JSONObject) -> Problem:
    """The problem of a task: always the same one."""
    index: int = task["index"]
    level: int = task["level"]
    template = TEMPLATES[index % len(TEMPLATES)]
    seed = hashlib.sha256(f"terminal {task['split']} {index} {template.name}".encode()).hexdigest()
    return template.make(Draw(seed, level))
