"""Scripted players for demonstrations and tests; each returns the sum of the rewards it got."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from orsay_protocol import TextBlock, ToolOutput

from .env import CCodingEnvironment, CodingEnvironment
from .languages import LANGUAGES
from .problem import Instance
from .tasks import instance_of

__all__ = ["Observer", "Player", "instance_in", "play", "play_empty", "play_source"]

Observer = Callable[[str, Mapping[str, Any], ToolOutput], object]
"""Callback for every call: tool, arguments, answer."""


class Player(Protocol):
    """Interface of a client's session for players."""

    async def prompt(self) -> Any: ...

    async def call(self, name: str, input: dict[str, Any]) -> ToolOutput: ...


async def play(session: Player, observe: Observer | None = None) -> float:
    """Write the reference solution, try the examples, submit."""
    instance = await instance_in(session)
    return await play_source(session, instance, instance.solution(), observe)


async def play_empty(session: Player, observe: Observer | None = None) -> float:
    """Submit without a solution."""
    return await _call(session, "submit", {}, observe)


async def play_source(
    session: Player, instance: Instance, source: str, observe: Observer | None = None
) -> float:
    """Write ``source``, try the examples, submit."""
    path = LANGUAGES[instance.language].path
    total = await _call(session, "write_file", {"path": path, "text": source}, observe)
    total += await _call(session, "run_examples", {}, observe)
    return total + await _call(session, "submit", {}, observe)


async def instance_in(session: Player) -> Instance:
    """The instance of a session: the one whose prompt it has.

    Raises ValueError for a prompt of no task. Tasks with a low index are found soon.
    """
    prompt = "".join(block.text for block in await session.prompt() if isinstance(block, TextBlock))
    for environment in (CodingEnvironment, CCodingEnvironment):
        for tasks in environment.splits.values():
            for task in tasks:
                instance = instance_of(task)
                if prompt.startswith(instance.text()) and environment(task).prompt() == prompt:
                    return instance
    raise ValueError("no task has this prompt; is this the coding environment?")


async def _call(session: Player, name: str, arguments: dict[str, Any], observe: Observer | None) -> float:
    output = await session.call(name, arguments)
    if observe is not None:
        observe(name, arguments, output)
    return output.reward or 0.0
