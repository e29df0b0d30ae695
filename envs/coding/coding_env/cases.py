"""Inputs of an instance: a few to show, and fresh ones to grade with."""

from __future__ import annotations

from random import Random
from typing import Any

from .problem import Instance

__all__ = ["EXAMPLES", "HIDDEN", "examples", "hidden"]

EXAMPLES = 3
HIDDEN = 24
_MOST_DRAWS = 2_000


def examples(instance: Instance, seed: str) -> list[Any]:
    """Inputs that are shown: neither the smallest nor the largest of those drawn."""
    drawn = _different(instance, Random(seed), 3 * EXAMPLES, [])
    return sorted(drawn, key=lambda value: len(instance.stdin(value)))[EXAMPLES : 2 * EXAMPLES]


def hidden(instance: Instance, seed: str, *, shown: list[Any], number: int = HIDDEN) -> list[Any]:
    """Inputs to grade with: different from each other, and from those that are shown."""
    return _different(instance, Random(seed), number, shown)


def _different(instance: Instance, rng: Random, number: int, without: list[Any]) -> list[Any]:
    seen = {instance.stdin(value) for value in without}
    found = []
    for _ in range(_MOST_DRAWS):
        value = instance.problem.draw(rng, instance.params)
        text = instance.stdin(value)
        if text not in seen:
            seen.add(text)
            found.append(value)
        if len(found) == number:
            return found
    raise ValueError(f"{instance.problem.name} has fewer than {number} different inputs")
