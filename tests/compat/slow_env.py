"""An environment whose calls take long enough to become streams."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from orsay import Environment, ToolOutput, tool


class Slow(Environment):
    """Wait, then answer."""

    splits: ClassVar = {"train": [{}]}

    def prompt(self) -> str:
        return "wait"

    @tool(concurrent=True)
    async def wait(self, seconds: float, text: str = "") -> ToolOutput:
        """Wait, and give the text back."""
        await asyncio.sleep(seconds)
        return ToolOutput(blocks=[text], reward=1.0)

    @tool
    async def fail(self, seconds: float) -> str:
        """Wait, and raise an exception."""
        await asyncio.sleep(seconds)
        raise RuntimeError("no luck")
