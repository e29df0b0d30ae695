"""Environments in which each session has a number, its reward, and in one of them some calls never end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import ClassVar

from orsay import Environment, TextBlock, ToolOutput, tool


class Draw(Environment):
    """Whatever door is looked at, a number is found, and a tenth of it is the reward."""

    splits: ClassVar = {"train": [{"hall": name} for name in ("red", "green", "blue", "white")]}

    def setup(self) -> None:
        """LOTTERY_TICKETS names a file that grows with each session."""
        with Path(os.environ["LOTTERY_TICKETS"]).open("a") as file:
            file.write(".")
            self.ticket = file.tell()

    def prompt(self) -> str:
        return f"Look at a door of the {self.task_spec['hall']} hall."

    @tool
    async def look(self, door: int) -> ToolOutput:
        """Look behind a door."""
        number = self.ticket % 7
        return ToolOutput(blocks=[TextBlock(text=f"You found {number}.")], reward=number / 10, finished=True)


class Lottery(Draw):
    """Every third session waits for ever."""

    @tool
    async def look(self, door: int) -> ToolOutput:
        """Look behind a door."""
        if self.ticket % 3 == 0:
            await asyncio.sleep(600)
        return await super().look(door)
