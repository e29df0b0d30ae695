"""The office toolsets of ``openreward`` in an environment written for it, and in one for ``orsay``."""

from __future__ import annotations

import json
from typing import Any

import orsay
from openreward import AsyncOpenReward, SandboxSettings
from openreward.environments import Environment, TextBlock, ToolOutput, tool
from openreward.toolsets import ExcelToolset, PDFToolset, PowerPointToolset, WordToolset
from pydantic import BaseModel

IMAGE = "generalreasoning/knowledge-worker"
TOOLSETS = (ExcelToolset, WordToolset, PowerPointToolset, PDFToolset)


class Command(BaseModel):
    cmd: str


class Office(Environment):  # type: ignore[misc]
    """A sandbox that its constructor names and its setup starts."""

    toolsets = list(TOOLSETS)

    def __init__(self, task_spec: dict[str, Any], secrets: dict[str, str] = {}) -> None:  # noqa: B006
        super().__init__(task_spec)
        client = AsyncOpenReward(api_key=secrets["api_key"])
        settings = SandboxSettings(
            environment="Tests/Office", image=IMAGE, machine_size="1:1", block_network=True
        )
        self.sandbox = client.sandbox(settings)

    async def setup(self) -> None:
        await self.sandbox.start()

    async def teardown(self) -> None:
        await self.sandbox.stop()

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{}]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="Work.")]

    @tool  # type: ignore[untyped-decorator]
    async def look(self, params: Command) -> ToolOutput:
        """Run a command, and tell output and code."""
        output, code = await self.sandbox.run(params.cmd)
        return ToolOutput(blocks=[TextBlock(text=json.dumps([output, code]))])


class Desk(orsay.Environment):
    """The same with a sandbox of ``orsay``."""

    toolsets = TOOLSETS
    splits = {"train": [{}]}

    async def setup(self) -> None:
        self.box: orsay.Sandbox = await self.sandbox(image=IMAGE)

    def prompt(self) -> str:
        return "Work."

    @orsay.tool
    async def look(self, cmd: str) -> orsay.ToolOutput:
        """Run a command, and tell output and code."""
        result = await self.box.run(cmd)
        return orsay.ToolOutput(blocks=[json.dumps([result.output, result.return_code])])

    @orsay.tool
    async def lose(self) -> orsay.ToolOutput:
        """End the sandbox."""
        await self.box.close()
        return orsay.ToolOutput(blocks=["lost"])
