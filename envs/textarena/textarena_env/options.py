"""Options of games with a fixed puzzle, derived from the seed.

A few games are registered with one fixed puzzle. Their constructors take others: these come from the seed.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from typing import Any

__all__ = ["options_for"]


def options_for(game: str, seed: int) -> dict[str, Any]:
    """Arguments for the game's constructor, the same for the same seed."""
    make = _OPTIONS.get(game)
    return make(random.Random(f"{game}/{seed}/options")) if make else {}


def _countdown(rng: random.Random) -> dict[str, Any]:
    """None lets the game draw numbers and target itself."""
    return {"numbers": None, "target": None}


def _cryptarithm(rng: random.Random) -> dict[str, Any]:
    """A sum that holds, its digits replaced by letters."""
    first, second = rng.randrange(100, 10_000), rng.randrange(100, 10_000)
    letters = rng.sample(string.ascii_uppercase, 10)
    words = [
        "".join(letters[int(digit)] for digit in str(number)) for number in (first, second, first + second)
    ]
    return {"equation": f"{words[0]} + {words[1]} = {words[2]}"}


def _nim(rng: random.Random) -> dict[str, Any]:
    return {"piles": [rng.randint(1, 6) for _ in range(3)]}


def _peg_jump(rng: random.Random) -> dict[str, Any]:
    return {"initial_empty": rng.randint(1, 15)}


_OPTIONS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "Countdown-v0": _countdown,
    "Cryptarithm-v0": _cryptarithm,
    "Nim-v0": _nim,
    "PegJump-v0": _peg_jump,
}
