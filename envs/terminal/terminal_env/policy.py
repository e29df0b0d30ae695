"""Scripted players for demonstrations and tests; each returns the sum of the rewards it got."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from orsay_protocol import TextBlock, ToolOutput

from .tasks import SPLITS, problem_of

__all__ = ["Observer", "Player", "play", "play_idle"]

Observer = Callable[[str, Mapping[str, Any], ToolOutput], object]
"""Callback for every call: tool, arguments, answer."""


class Player(Protocol):
    """Interface of a client's session for players."""

    async def prompt(self) -> Any: ...

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput: ...


async def play(session: Player, observe: Observer | None = None) -> float:
    """Run the solution of the task that the prompt names, and submit."""
    text = "".join(block.text for block in await session.prompt() if isinstance(block, TextBlock))
    found = re.match(r"Task terminal-(\w+)-(\d+)\.", text)
    if found is None:
        raise ValueError("the prompt names no task; is this the terminal environment?")
    task = SPLITS[found[1]][int(found[2])]
    await _call(session, "bash", {"command": problem_of(task).solution}, observe)
    return await _call(session, "submit", {}, observe)


async def play_idle(session: Player, observe: Observer | None = None) -> float:
    """Submit without having done anything; never right."""
    return await _call(session, "submit", {}, observe)


async def _call(session: Player, name: str, arguments: dict[str, Any], observe: Observer | None) -> float:
    output = await session.call(name, arguments)
    if observe is not None:
        observe(name, arguments, output)
    return output.reward or 0.0
