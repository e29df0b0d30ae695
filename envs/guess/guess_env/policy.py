"""Scripted players for demonstrations and tests; each returns the sum of the rewards it got."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from orsay_protocol import TextBlock, ToolOutput

__all__ = ["Observer", "Player", "play", "play_stubborn"]

Observer = Callable[[str, Mapping[str, Any], ToolOutput], object]
"""Callback for every call: tool, arguments, answer."""


class Player(Protocol):
    """Interface of a client's session for players."""

    async def prompt(self) -> Any: ...

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput: ...


async def play(session: Player, observe: Observer | None = None) -> float:
    """Halve the range until the number is found."""
    low, high = await _range(session)
    total = 0.0
    while low <= high:
        number = (low + high) // 2
        output = await _guess(session, number, observe)
        total += output.reward or 0.0
        if output.finished:
            break
        if "higher" in _text(output.blocks):
            low = number + 1
        else:
            high = number - 1
    return total


async def play_stubborn(session: Player, observe: Observer | None = None) -> float:
    """Guess a number that cannot be right until the guesses are used up."""
    _, high = await _range(session)
    total = 0.0
    while True:
        output = await _guess(session, high + 1, observe)
        total += output.reward or 0.0
        if output.finished:
            return total


async def _range(session: Player) -> tuple[int, int]:
    found = re.search(r"from (\d+) to (\d+)", _text(await session.prompt()))
    if found is None:
        raise ValueError("the prompt names no range; is this the guess environment?")
    return int(found.group(1)), int(found.group(2))


async def _guess(session: Player, number: int, observe: Observer | None) -> ToolOutput:
    arguments = {"number": number}
    output = await session.call("guess", arguments)
    if observe is not None:
        observe("guess", arguments, output)
    return output


def _text(blocks: Any) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))
