"""Scripted players for demonstrations and tests; each returns the sum of the rewards it got."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from orsay_protocol import TextBlock, ToolOutput

__all__ = ["Observer", "Player", "play", "play_wrong"]

Observer = Callable[[str, Mapping[str, Any], ToolOutput], object]
"""Callback for every call: tool, arguments, answer."""


class Player(Protocol):
    """Interface of a client's session for players."""

    async def prompt(self) -> Any: ...

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput: ...


async def play(session: Player, observe: Observer | None = None) -> float:
    """Echo the word that the prompt quotes."""
    text = "".join(block.text for block in await session.prompt() if isinstance(block, TextBlock))
    found = re.search(r"text='(.*)'", text, re.DOTALL)
    return await _echo(session, found.group(1) if found else "", observe)


async def play_wrong(session: Player, observe: Observer | None = None) -> float:
    """Echo something else."""
    return await _echo(session, "certainly not the target", observe)


async def _echo(session: Player, text: str, observe: Observer | None) -> float:
    arguments = {"text": text}
    output = await session.call("echo", arguments)
    if observe is not None:
        observe("echo", arguments, output)
    return output.reward or 0.0
