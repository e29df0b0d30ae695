"""A generator of random numbers for each episode, for a package that draws from the module ``random``.

The package's games call ``random.choice`` and the like, and seed the one generator of the process. In its
modules the name ``random`` is made to mean ``Dice``: within ``rolled_by`` it draws from the generator of one
episode, elsewhere it is the module as ever. So episodes disturb neither each other nor anything else.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

__all__ = ["Dice", "put_dice_into", "rolled_by"]

_generator: ContextVar[random.Random | None] = ContextVar("generator", default=None)


class Dice:
    """Stands where a module has imported ``random``."""

    def __getattr__(self, name: str) -> Any:
        generator = _generator.get()
        if generator is not None and not name.startswith("_") and hasattr(generator, name):
            return getattr(generator, name)
        return getattr(random, name)


_DICE = Dice()


def put_dice_into(module: ModuleType) -> None:
    """Let ``random`` mean the dice in that module, if it has imported it whole."""
    if vars(module).get("random") is random:
        module.__dict__["random"] = _DICE


@contextmanager
def rolled_by(generator: random.Random) -> Iterator[None]:
    """Let the dice draw from ``generator`` meanwhile, on this thread or task only."""
    token = _generator.set(generator)
    try:
        yield
    finally:
        _generator.reset(token)
