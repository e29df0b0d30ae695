"""Random number generators per episode, for a package that uses the module ``random``.

The package's games call ``random.choice`` and the like, and seed the global generator. In its modules the
name ``random`` is replaced by ``Dice``: inside ``rolled_by`` it uses the generator of one episode, elsewhere
the module. So episodes are independent of each other and of other code.
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
    """Replacement for the module ``random``."""

    def __getattr__(self, name: str) -> Any:
        generator = _generator.get()
        if generator is not None and not name.startswith("_") and hasattr(generator, name):
            return getattr(generator, name)
        return getattr(random, name)


_DICE = Dice()


def put_dice_into(module: ModuleType) -> None:
    """Replace ``random`` in that module, if it has ``import random``."""
    if vars(module).get("random") is random:
        module.__dict__["random"] = _DICE


@contextmanager
def rolled_by(generator: random.Random) -> Iterator[None]:
    """Use ``generator`` inside the block, on this thread or task only."""
    token = _generator.set(generator)
    try:
        yield
    finally:
        _generator.reset(token)
