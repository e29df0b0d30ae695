"""Word problems by index, deterministic on every platform and Python version.

Every draw is a hash of split, index and the count of draws before, so nothing depends on the random number
generator of a Python version, and making problem 90,000 makes no other. Splits use different people:
a problem seen in training never stands word for word in validation or test.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from string import Formatter
from typing import TypeVar, overload

from orsay import JSONObject

from .calculator import calculate
from .templates import NAMES, TEMPLATES, THINGS, Template

__all__ = ["LEVELS", "SIZES", "Problem", "Problems", "make_problem", "solution"]

LEVELS = 4
SIZES = {"train": 100_000, "validation": 2_000, "test": 2_000}

Choice = TypeVar("Choice")


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, its difficulty from 1 to 4, and its exact answer."""

    question: str
    level: int
    answer: Fraction


def make_problem(split: str, index: int) -> Problem:
    """The problem at ``index`` (from 0) of ``split``; four neighbours have the four levels."""
    dice = _Dice(f"{split}/{index}")
    level = index % LEVELS + 1
    template = dice.pick([template for template in TEMPLATES if template.level == level])
    name = dice.pick(NAMES[split])
    values = {
        "name": name,
        "other": dice.pick([other for other in NAMES[split] if other != name]),
        "thing": dice.pick(THINGS),
    }
    for number, (low, high) in template.numbers.items():
        values[number] = str(dice.roll(low, high))
    for number, expression in template.derived.items():
        values[number] = str(calculate(expression.format(**values)))
    return Problem(template.text.format(**values), level, calculate(template.solution.format(**values)))


def solution(question: str) -> str | None:
    """The expression that solves a question made here, worked out from its text alone."""
    for template in TEMPLATES:
        found = _pattern(template).fullmatch(question)
        if found is not None:
            return template.solution.format(**found.groupdict())
    return None


class Problems(Sequence[JSONObject]):
    """The tasks of a split, made when asked for. A task holds the question and not the answer."""

    def __init__(self, split: str) -> None:
        self._split = split

    def __len__(self) -> int:
        return SIZES[self._split]

    @overload
    def __getitem__(self, index: int) -> JSONObject: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[JSONObject]: ...

    def __getitem__(self, index: int | slice) -> JSONObject | Sequence[JSONObject]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        index = range(len(self))[index]
        problem = make_problem(self._split, index)
        return {
            "id": f"arithmetic-{self._split}-{index}",
            "split": self._split,
            "index": index,
            "level": problem.level,
            "question": problem.question,
        }


class _Dice:
    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._rolls = 0

    def roll(self, low: int, high: int) -> int:
        self._rolls += 1
        digest = sha256(f"{self._seed}/{self._rolls}".encode()).digest()
        return low + int.from_bytes(digest, "big") % (high - low + 1)

    def pick(self, choices: Sequence[Choice]) -> Choice:
        return choices[self.roll(0, len(choices) - 1)]


def _pattern(template: Template) -> re.Pattern[str]:
    numbers = {*template.numbers, *template.derived}
    seen: set[str] = set()
    pattern = ""
    for literal, field, _, _ in Formatter().parse(template.text):
        pattern += re.escape(literal)
        if field is None:
            continue
        group = r"[0-9]+" if field in numbers else r"[A-Za-z ]+?"
        pattern += f"(?P={field})" if field in seen else f"(?P<{field}>{group})"
        seen.add(field)
    return re.compile(pattern)
