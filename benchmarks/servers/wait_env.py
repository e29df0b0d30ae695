"""The environment of the training benchmark: a tool that takes its time, and an end after a few calls."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from orsay import Environment, TextBlock, ToolOutput, tool


class WaitEnvironment(Environment):
    """Asks for some calls of one tool; each takes a while, the last one ends the episode with reward 1."""

    splits: ClassVar[dict[str, list[dict[str, Any]]]] = {
        "train": [{"id": i, "calls": 4, "seconds": 0.05} for i in range(64)]
    }

    def setup(self) -> None:
        self.made = 0

    def prompt(self) -> str:
        return f"Task {self.task_spec['id']}: call work until it says that all is done."

    @tool
    async def work(self, note: str) -> ToolOutput:
        """Do a part of the work.

        Args:
            note: What is done in this part.
        """
        await asyncio.sleep(self.task_spec["seconds"])
        self.made += 1
        done = self.made >= self.task_spec["calls"]
        text = "All is done." if done else f"Part {self.made} is done; go on."
        return ToolOutput(blocks=[TextBlock(text=text)], reward=float(done), finished=done)
