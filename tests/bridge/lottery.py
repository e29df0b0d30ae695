"""Environments in which each drawn number is its reward, and in one of them some draws never end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import ClassVar

from orsay import Environment, TextBlock, ToolOutput, tool


class Draw(Environment):
    """A tenth of the number is the reward."""

    splits: ClassVar = {"train": [{"urn": name} for name in ("red", "green", "blue", "white")]}

    def prompt(self) -> str:
        return f"Draw a number from the {self.task_spec['urn']} urn."

    @tool
    async def draw(self, number: int) -> ToolOutput:
        """Draw a number."""
        return ToolOutput(blocks=[TextBlock(text=f"You drew {number}.")], reward=number / 10, finished=True)


class Lottery(Draw):
    """Every third session waits for ever; LOTTERY_TICKETS names a file that grows with each session."""

    def setup(self) -> None:
        with Path(os.environ["LOTTERY_TICKETS"]).open("a") as file:
            file.write(".")
            self.ticket = file.tell()

    @tool
    async def draw(self, number: int) -> ToolOutput:
        """Draw a number."""
        if self.ticket % 3 == 0:
            await asyncio.sleep(600)
        return ToolOutput(blocks=[TextBlock(text=f"You drew {number}.")], reward=number / 10, finished=True)
