"""Environments written for ``openreward`` alone, whose tools run code in its sandboxes."""

from __future__ import annotations

import json
import os
from typing import Any

from openreward import AsyncOpenReward, SandboxBucketConfig, SandboxSettings
from openreward.environments import Environment, TextBlock, ToolOutput, tool
from openreward.toolsets import CLIToolset
from pydantic import BaseModel


class Command(BaseModel):
    cmd: str


class Workroom(Environment):  # type: ignore[misc]
    """One sandbox; the tools of CLIToolset, and a grader in a sandbox of its own."""

    toolsets = [CLIToolset]

    def __init__(self, task_spec: dict[str, Any], secrets: dict[str, str] = {}) -> None:  # noqa: B006
        super().__init__(task_spec)
        if not secrets.get("api_key"):
            raise ValueError("an API key is required")
        self.key = secrets["api_key"]
        self.client = AsyncOpenReward(api_key=self.key)
        self.sandbox = self.client.sandbox(self.settings())

    def settings(self, **more: Any) -> SandboxSettings:
        known = {
            "environment": "Tests/Workroom",
            "image": "generalreasoning/python-ds:3.12-tools",
            "machine_size": "0.5:1",
            "bucket_config": SandboxBucketConfig(mount_path="/orwd_data", only_dir="tasks/sum"),
        }
        return SandboxSettings(**{**known, **more})

    async def setup(self) -> None:
        await self.sandbox.start()

    async def teardown(self) -> None:
        if not self.task_spec.get("forgets"):
            await self.sandbox.stop()

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{"id": "sum"}, {"id": "sum", "forgets": True}]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="Write the sum of /orwd_data/numbers.txt to /tmp/answer.txt")]

    @tool  # type: ignore[untyped-decorator]
    async def look(self, params: Command) -> ToolOutput:
        """Run a command, and tell key and id of the sandbox."""
        output, code = await self.sandbox.run(params.cmd)
        told = {"output": output, "code": code, "key": self.key, "sid": self.sandbox.sid}
        told["variable"] = os.environ.get("OPENREWARD_API_KEY", "")
        return ToolOutput(blocks=[TextBlock(text=json.dumps(told))])

    @tool  # type: ignore[untyped-decorator]
    async def submit(self) -> ToolOutput:
        """Grade the answer, in a sandbox without a network."""
        answer = await self.sandbox.download("/tmp/answer.txt")
        async with self.client.sandbox(self.settings(block_network=True)) as grader:
            out, _ = await grader.run("paste -sd+ /orwd_data/numbers.txt | (read line; echo $((line)))")
        reward = float(out.strip() == answer.decode().strip())
        return ToolOutput(blocks=[TextBlock(text=out)], reward=reward, finished=True)
