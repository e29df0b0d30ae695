"""Environments that remember in which order they were asked for what, for tests that kill the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from orsay import Environment, GroupCandidate, ListToolsOutput, tool


async def _until(file: str) -> None:
    """Wait for the file, if one is named."""
    while file and not Path(file).exists():
        await asyncio.sleep(0.01)


class Orders(Environment):
    """Its tools note a label when they begin, and answer the same whatever else there is."""

    replayable = True
    splits: ClassVar = {"train": [{"first": i} for i in range(10)]}

    def setup(self) -> None:
        self.noted: list[str] = []
        self.asked = 0

    async def prompt(self) -> str:
        self.asked += 1
        return "Note things."

    @tool(concurrent=True)
    async def step(self, label: str, until: str = "") -> str:
        """Note a label, and go on until there is a file; may overlap with itself."""
        self.noted.append(label)
        await _until(until)
        return "noted"

    @tool
    async def queued(self, label: str, until: str = "") -> str:
        """The same, one after the other."""
        self.noted.append(label)
        await _until(until)
        return "noted"

    @tool(exclusive=True)
    async def alone(self, label: str, until: str = "") -> str:
        """The same, while nothing else runs."""
        self.noted.append(label)
        await _until(until)
        return "noted"

    @tool
    async def draw(self) -> str:
        """How often the prompt was asked for."""
        return str(self.asked)

    @tool
    async def read(self) -> str:
        """All that was noted."""
        return " ".join(self.noted)

    async def score_group(self, candidates: Sequence[GroupCandidate]) -> list[float]:
        """Note it, and score all alike."""
        self.noted.append("scored")
        return [0.5 for _ in candidates]


class Shown(Orders):
    """Its prompt shows what was noted."""

    async def prompt(self) -> str:
        return " ".join(["Noted:", *self.noted])


class Listed(Orders):
    """To list its tools goes on until there is a file, and is noted."""

    async def list_task_tools(self) -> ListToolsOutput:
        self.noted.append("listed")
        Path(str(self.task_spec["mark"])).touch()
        await _until(str(self.task_spec["until"]))
        return ListToolsOutput(tools=[])


class ListedSlowly(Orders):
    """Its setup takes its time, and to list its tools is noted."""

    def setup(self) -> None:
        time.sleep(0.3)
        super().setup()

    async def list_task_tools(self) -> ListToolsOutput:
        self.noted.append("listed")
        return ListToolsOutput(tools=[])
