"""An environment with answers in its tasks, and tools that return whatever they are given."""

from __future__ import annotations

import asyncio
from typing import Any

from orsay import Environment, TextBlock, ToolOutput, tool

__all__ = ["ANSWER", "Vault"]

ANSWER = "kept-to-itself-4711"


class Vault(Environment):
    """Tasks with an answer that only the environment may know."""

    splits = {
        "train": [{"answer": f"{ANSWER}-{number}", "question": f"which of {number}?"} for number in range(5)]
    }
    call_time_limit_s = 60.0

    @classmethod
    def name(cls) -> str:
        return "vault"

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text=str(self.task_spec.get("question", "a task of your own")))]

    @tool
    def echo(self, text: str) -> str:
        """Return the text."""
        return text

    @tool
    def pay(self, reward: float) -> ToolOutput:
        """Return the reward."""
        return ToolOutput(blocks=[], reward=reward)

    @tool
    def overpay(self, digits: str) -> ToolOutput:
        """Return a reward that is read from a text."""
        return ToolOutput(blocks=[], reward=float(digits))

    @tool
    async def wait(self) -> str:
        """Wait to be stopped."""
        await asyncio.sleep(50)
        return "not stopped"

    @tool
    def fail(self, text: str) -> str:
        """Raise with the text."""
        raise ValueError(text)

    async def score_group(self, candidates: Any) -> list[float]:
        return [float(candidate.metadata["reward"]) for candidate in candidates]
