"""Base of the environment classes of all adapters: their origin, and tasks that are seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..authoring.environment import Environment
from ..errors import BadTask, LoadError
from .spelling import write

__all__ = [
    "Adapted",
    "Origin",
    "Procedural",
    "Seeded",
    "Seeds",
    "changed",
    "class_name",
    "environment_name",
    "origin",
    "step_limit",
    "target_of",
]

TEST_SEEDS = 1_000_000_000
"""Distance between the first seed for training and the first for testing."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds that are tasks: ``train`` from ``first`` on, ``test`` a billion later; none is both."""

    train: int
    test: int
    first: int

    @classmethod
    def checked(cls, *, train_tasks: Any, test_tasks: Any, seed: Any) -> Seeds:
        """Seeds from an author's arguments. Raises LoadError for a bad count or seed."""
        for name, value in (("train_tasks", train_tasks), ("test_tasks", test_tasks), ("seed", seed)):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TEST_SEEDS:
                raise LoadError(f"{name} must be a whole number from 0 to {TEST_SEEDS}; found {value!r}")
        if not train_tasks + test_tasks:
            raise LoadError("train_tasks and test_tasks are both 0, so there is no task")
        return cls(train=train_tasks, test=test_tasks, first=seed)

    def of(self, split: str) -> range:
        """The seeds of a split, in order of index."""
        first, count = (self.first, self.train) if split == "train" else (self.first + TEST_SEEDS, self.test)
        return range(first, first + count)

    @property
    def splits(self) -> list[str]:
        """Splits that have a task."""
        return [split for split in ("train", "test") if len(self.of(split))]


@dataclass(frozen=True, slots=True)
class Origin:
    """The target from which another process can make the class; ``problem`` is the reason where there is
    none.
    """

    target: str | None
    problem: str = ""


class Adapted(Environment):
    """Base of the classes that adapters make. ``_origin`` and ``_name`` are set for each."""

    _origin: ClassVar[Origin]
    _name: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return cls._name


class Procedural(Adapted):
    """An environment whose tasks are made from seeds: counted and got, never listed."""

    _seeds: ClassVar[Seeds]

    @classmethod
    def list_splits(cls) -> list[Any]:
        return list(cls._seeds.splits)

    @classmethod
    def num_tasks(cls, split: str) -> int:
        return len(cls._seeds.of(split))

    @classmethod
    def _position(cls, split: str, index: int) -> int:
        """The index counted from the start. Raises IndexError."""
        count = len(cls._seeds.of(split))
        if not -count <= index < count:
            raise IndexError(f"{split!r} has {count} tasks")
        return index % count


class Seeded(Procedural):
    """One whose tasks are the seeds themselves; ``_seed`` is the task's."""

    def __init__(self, task_spec: Any = None, secrets: Mapping[str, str] | None = None) -> None:
        super().__init__(task_spec, secrets)
        seed = self.task_spec.get("seed")
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise BadTask(f'a task of {self._name!r} is {{"seed": number}}; found {dict(self.task_spec)!r}')
        self._seed = seed

    @classmethod
    def get_task(cls, split: str, index: int) -> dict[str, Any]:
        position = cls._position(split, index)
        return {"id": f"{split}-{position}", "seed": cls._seeds.of(split)[position]}


def changed(**settings: tuple[Any, Any]) -> dict[str, Any]:
    """Settings whose value differs from the default."""
    return {key: value for key, (value, default) in settings.items() if value != default}


def step_limit(max_steps: Any) -> int | None:
    """Validated ``max_steps``. Raises LoadError for a value that is no number of steps."""
    if max_steps is None:
        return None
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        raise LoadError(f"max_steps must be a whole number from 1 on; found {max_steps!r}")
    return max_steps


def origin(kind: str, name: str | None, settings: Mapping[str, Any], problem: str = "") -> Origin:
    """Origin of a class; ``name`` is None where there is no target, for the reason in ``problem``."""
    if name is None:
        return Origin(None, problem)
    try:
        return Origin(write(kind, name, settings))
    except (TypeError, ValueError) as exc:
        return Origin(
            None,
            f"{kind}:{name} has a setting that cannot be passed to another process ({exc}); serve it with "
            "the local runtime, or make the class at the top level of a file and serve that",
        )


def target_of(cls: type) -> str | None:
    """The target of a class that an adapter made; None for any other, one derived from it included.

    Raises LoadError for one that cannot be made in another process.
    """
    found = vars(cls).get("_origin")
    if not isinstance(found, Origin):
        return None
    if found.target is None:
        raise LoadError(found.problem)
    return found.target


def class_name(name: str) -> str:
    """An identifier for ``__name__``, from any text."""
    return "".join(part[:1].upper() + part[1:] for part in re.findall(r"\w+", name)) or "Adapted"


def environment_name(given: Any, default: str) -> str:
    """Public name of the environment: ``given``, else ``default`` without characters that a URL path forbids.

    Raises LoadError for a given name that is none.
    """
    if given is None:
        return re.sub(r"[/:\s]+", "-", default).strip("-")
    if not isinstance(given, str) or not given or "/" in given:
        raise LoadError(f"name must be a name without '/'; found {given!r}")
    return given
