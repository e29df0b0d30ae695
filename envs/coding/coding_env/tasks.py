"""Tasks by split and index, and the instance that each stands for.

An instance belongs to one split by a hash of its template and parameters, so that no instance of ``test`` is
ever in ``train``, in whatever wording. A task does not hold the parameters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from random import Random
from typing import overload

from orsay import JSONObject

from .problem import Instance, Params
from .problems import PROBLEMS

__all__ = ["SIZES", "Tasks", "instance_of", "split_of"]

SIZES = {"train": 10_000, "test": 500}
_TEST_SHARE = 8  # one parameter set in 8 is held out


def split_of(problem: str, params: Params) -> str:
    """The split whose tasks may have these parameters."""
    digest = sha256(json.dumps([problem, params], sort_keys=True).encode()).digest()
    return "train" if int.from_bytes(digest[:8], "big") % _TEST_SHARE else "test"


class Tasks(Sequence[JSONObject]):
    """Tasks of a split in some languages, each computed when it is asked for.

    Templates come in turn. Each in its turn is asked in those of the languages that it has solutions in.
    """

    def __init__(self, split: str, languages: Sequence[str]) -> None:
        self._split = split
        self._languages = languages
        self._problems = [
            problem for problem in PROBLEMS.values() if any(each in problem.solutions for each in languages)
        ]

    def __len__(self) -> int:
        return SIZES[self._split]

    @overload
    def __getitem__(self, index: int) -> JSONObject: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[JSONObject]: ...

    def __getitem__(self, index: int | slice) -> JSONObject | Sequence[JSONObject]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        index = range(len(self))[index]
        turn, at = divmod(index, len(self._problems))
        problem = self._problems[at]
        languages = [each for each in self._languages if each in problem.solutions]
        return {
            "id": f"coding-{self._split}-{index}",
            "split": self._split,
            "index": index,
            "problem": problem.name,
            "form": problem.form,
            # at: else all programs of a turn would be in one language
            "language": languages[(turn + at) % len(languages)],
        }

    def own(self, task: JSONObject) -> bool:
        """True for a task of these."""
        index = task.get("index")
        return type(index) is int and 0 <= index < len(self) and self[index] == dict(task)


def instance_of(task: JSONObject) -> Instance:
    """The instance that a task of ``Tasks`` stands for; the same in every process."""
    problem = PROBLEMS[task["problem"]]
    for attempt in count():
        rng = Random(f"{task['split']}/{task['index']}/{task['problem']}/{task['language']}/{attempt}")
        params = problem.params(rng)
        if split_of(problem.name, params) == task["split"]:
            return Instance(
                problem=problem,
                params=params,
                words={key: rng.choice(choices) for key, choices in problem.words.items()},
                statement=rng.choice(problem.statements),
                language=task["language"],
            )
    raise AssertionError("unreachable: attempts do not end")
