"""Scripted players for demonstrations and tests; each returns the reward of the episode.

They play ``GuessTheNumber-v0``, whose tasks are the splits ``GuessTheNumber-v0-train`` and ``-test``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from orsay_protocol import TextBlock, ToolOutput

__all__ = ["Observer", "Player", "play", "play_nonsense"]

Observer = Callable[[str, Mapping[str, Any], ToolOutput], object]
"""Callback for every call: tool, arguments, answer."""


class Player(Protocol):
    """Interface of a client's session for players."""

    async def prompt(self) -> Any: ...

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput: ...


async def play(session: Player, observe: Observer | None = None) -> float:
    """Halve the range until the number is found. Raises ValueError for another game."""
    found = re.search(r"number between (\d+) and (\d+)", _text(await session.prompt()))
    if found is None:
        raise ValueError("this player knows GuessTheNumber only; the prompt is that of another game")
    low, high = int(found.group(1)), int(found.group(2))
    while True:
        number = (low + high) // 2
        output = await _act(session, f"[{number}]", observe)
        if output.finished:
            return output.reward or 0.0
        if "higher" in _text(output.blocks):
            low = number + 1
        else:
            high = number - 1


async def play_nonsense(session: Player, observe: Observer | None = None) -> float:
    """Send invalid actions until the game is over."""
    while True:
        output = await _act(session, "I would rather not.", observe)
        if output.finished:
            return output.reward or 0.0


async def _act(session: Player, action: str, observe: Observer | None) -> ToolOutput:
    arguments = {"action": action}
    output = await session.call("act", arguments)
    if observe is not None:
        observe("act", arguments, output)
    return output


def _text(blocks: Any) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))
