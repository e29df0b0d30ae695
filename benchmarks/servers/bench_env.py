"""The echo environment of the benchmark, written for Orsay: `orsay serve bench_env:EchoEnvironment`."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, ClassVar

from orsay import Environment, TextBlock, ToolOutput, tool


def answer(text: str) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)], reward=0.0, finished=False)


class EchoEnvironment(Environment):
    """Echoes text, at once or after a delay."""

    replayable = os.environ.get("BENCH_REPLAYABLE") == "yes"
    splits: ClassVar[dict[str, list[dict[str, Any]]]] = {
        "train": [{"id": i, "text": f"say hello {i}"} for i in range(10)]
    }

    async def prompt(self) -> str:  # as in echo_peer
        return str(self.task_spec["text"])

    @tool
    async def echo(self, text: str) -> ToolOutput:
        """Echo the text."""
        return answer(text)

    @tool
    def echo_sync(self, text: str) -> ToolOutput:
        """Echo the text, from a plain function."""
        return answer(text)

    @tool
    async def slow(self, seconds: float) -> ToolOutput:
        """Wait without holding a thread."""
        await asyncio.sleep(seconds)
        return answer("ok")

    @tool
    def block(self, seconds: float) -> ToolOutput:
        """Wait, holding a thread."""
        time.sleep(seconds)
        return answer("ok")
