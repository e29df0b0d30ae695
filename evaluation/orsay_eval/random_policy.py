"""A policy that calls tools at random, as a baseline."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from orsay_protocol import TextBlock

from .draw import draw
from .moves import Call, Move, Opening, Result

__all__ = ["RandomPolicy"]

_WORD = re.compile(r"[\w.+-]{1,40}")


class RandomPolicy:
    """Random policy: each move is one tool, drawn evenly, with an input drawn from its schema.

    Free strings are words from the environment's texts. Attempts differ; the same ``seed`` makes the same
    calls if the environment gives the same answers.
    """

    name = "random"
    wants_spec = False

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def settings(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def player(self, opening: Opening) -> _RandomPlayer:
        seed = f"{self.seed}/{opening.split}/{opening.index}/{opening.attempt}"
        return _RandomPlayer(opening, random.Random(seed))

    async def aclose(self) -> None:
        """Do nothing: the policy holds no connections."""


class _RandomPlayer:
    def __init__(self, opening: Opening, rng: random.Random) -> None:
        self._opening, self._rng = opening, rng
        shown = [block.text for m in opening.messages for block in m.blocks if isinstance(block, TextBlock)]
        self._words = _words(shown)

    async def move(self, results: Sequence[Result], note: str = "") -> Move:
        self._words = _words([result.text for result in results]) or self._words
        tools = self._opening.tools
        if not tools:
            return Move(text=self._rng.choice(self._words) if self._words else "yes")
        tool = self._rng.choice(tools)
        return Move([Call(tool.name, draw(tool.input_schema or {"type": "object"}, self._rng, self._words))])


def _words(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(word for text in texts for word in _WORD.findall(text)))[-200:]
