"""Environments whose state is in a sandbox, for servers that are killed."""

from __future__ import annotations

from typing import ClassVar

from orsay import Environment, Sandbox, ToolOutput, tool


class Lost(Environment):
    """Its author does not say that commands are repeatable."""

    replayable = True
    splits: ClassVar = {"train": [{}]}
    box: Sandbox | None = None

    def prompt(self) -> str:
        return "Run commands."

    @tool
    async def run(self, command: str) -> ToolOutput:
        """Run a command."""
        if self.box is None:
            self.box = await self.sandbox(cpus=0.5, memory="256m")
        result = await self.box.run(command, timeout_s=30)
        return ToolOutput(blocks=[result.output])

    @tool
    async def wait(self) -> str:
        """Use no sandbox."""
        return "waited"


class Repeated(Lost):
    """The same, with commands that are repeatable."""

    repeatable_commands = True
