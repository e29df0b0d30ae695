"""Environments for the tests of other protocols: each does what its calls say."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path

from orsay import Environment, ImageBlock, TextBlock, ToolOutput, terminal, tool

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Scripted(Environment):
    """Does what its calls say."""

    splits = {"train": [{"name": "one"}, {"name": "two"}, {"name": "three"}], "test": [{"name": "four"}]}

    def prompt(self) -> str:
        return f"This is task {self.task['name']}, secret {self.secrets.get('word', 'none')}."

    @tool
    def say(self, text: str, times: int = 1) -> ToolOutput:
        """Say something.

        Args:
            text: What to say.
            times: How often.
        """
        return ToolOutput(blocks=[text] * times, reward=0.25 * times, metadata={"times": times})

    @tool
    def look(self) -> ToolOutput:
        """Look around."""
        image = ImageBlock(data=base64.b64encode(PIXEL).decode(), mimeType="image/png")
        return ToolOutput(blocks=[TextBlock(text="You see:"), image])

    @tool
    def fail(self) -> str:
        """Break."""
        raise RuntimeError("out of paper")

    @tool
    def vanish(self) -> str:
        """Take the process down."""
        os._exit(3)

    @tool
    async def wait(self, seconds: float, began: str = "") -> str:
        """Take a while; ``began`` is a file to make first."""
        if began:
            Path(began).touch()
        await asyncio.sleep(seconds)
        return "done"

    @tool
    @terminal
    def submit(self, answer: str) -> ToolOutput:
        """The last word."""
        return ToolOutput(blocks=["Thank you."], reward=float(answer == "42"), finished=True)


class Broken(Environment):
    """Never gets ready."""

    splits = {"train": [{}]}

    def prompt(self) -> str:
        return "Nobody reads this."

    def setup(self) -> None:
        raise RuntimeError("no database")

    @tool
    def nothing(self) -> str:
        """Do nothing."""
        return ""
