"""Scripted players for demonstrations and tests; each returns the sum of the rewards it got."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from orsay_protocol import TextBlock, ToolOutput

from .tasks import WORDS

__all__ = ["Observer", "Player", "play", "play_blind", "play_word"]

Observer = Callable[[str, Mapping[str, Any], ToolOutput], object]
"""Callback for every call: tool, arguments, answer."""


class Player(Protocol):
    """Interface of a client's session for players."""

    async def prompt(self) -> Any: ...

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput: ...


async def play(session: Player, observe: Observer | None = None) -> float:
    """Look, then open with the word that was seen."""
    return await play_word(session, None, observe)


async def play_blind(session: Player, observe: Observer | None = None) -> float:
    """Open without looking, with the word that has the number of the door; wrong on every training task."""
    number = await _number(session)
    return await _open(session, WORDS[(number - 1) % len(WORDS)], observe)


async def play_word(session: Player, word: str | None, observe: Observer | None = None) -> float:
    """Look, then open with ``word``, or with the word that was seen when it is None."""
    arguments = {"door": await _number(session)}
    seen = await session.call("look", arguments)
    if observe is not None:
        observe("look", arguments, seen)
    return await _open(session, word or _text(seen.blocks).split()[-1], observe)


async def _open(session: Player, word: str, observe: Observer | None) -> float:
    arguments = {"code": word}
    output = await session.call("open", arguments)
    if observe is not None:
        observe("open", arguments, output)
    return output.reward or 0.0


async def _number(session: Player) -> int:
    found = re.search(r"door (\d+)", _text(await session.prompt()))
    if found is None:
        raise ValueError("the prompt names no door; is this the doors environment?")
    return int(found.group(1))


def _text(blocks: Any) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))
