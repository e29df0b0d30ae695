"""Scripted players for demonstrations and tests; each returns the sum of the rewards it got."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from orsay_protocol import TextBlock, ToolOutput

from .problems import solution

__all__ = ["Observer", "Player", "play", "play_wrong"]

Observer = Callable[[str, Mapping[str, Any], ToolOutput], object]
"""Callback for every call: tool, arguments, answer."""


class Player(Protocol):
    """Interface of a client's session for players."""

    async def prompt(self) -> Any: ...

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput: ...

    async def call_terminal(self, text: str) -> ToolOutput: ...


async def play(session: Player, observe: Observer | None = None) -> float:
    """Find the expression for the problem, have it calculated, and answer with the result."""
    question = _text(await session.prompt()).partition("\n\n")[0]
    arguments = {"expression": solution(question) or "0"}
    worked_out = await session.call("calculator", arguments)
    if observe is not None:
        observe("calculator", arguments, worked_out)
    result = _text(worked_out.blocks).partition(" ")[0]
    return await _answer(session, f"I calculated {arguments['expression']}.\nAnswer: {result}", observe)


async def play_wrong(session: Player, observe: Observer | None = None) -> float:
    """Answer without a calculation, and wrongly."""
    return await _answer(session, "That looks hard.\nAnswer: -1", observe)


async def _answer(session: Player, message: str, observe: Observer | None) -> float:
    output = await session.call_terminal(message)
    if observe is not None:
        observe("answer", {"message": message}, output)
    return output.reward or 0.0


def _text(blocks: Any) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))
