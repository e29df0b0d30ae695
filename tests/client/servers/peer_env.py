"""Environments for the client's tests, for any of three authoring packages.

ORSAY_TEST_PACKAGE names the one whose classes are used: ``orsay`` (default), ``openreward.environments`` or
``ors``. What a package does not know is left out of the class there.
"""

# No postponed annotations here: old releases read them as objects.

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from orsay import Environment, TextBlock, ToolOutput, terminal, tool
else:
    package = import_module(os.environ.get("ORSAY_TEST_PACKAGE", "orsay"))
    Environment, tool, ToolOutput, TextBlock = (
        package.Environment,
        package.tool,
        package.ToolOutput,
        package.TextBlock,
    )
    terminal = getattr(package, "terminal", None)

CAN_SCORE = TYPE_CHECKING or hasattr(package, "GroupScore")


class Text(BaseModel):
    text: str


class Number(BaseModel):
    number: float


def said(text: str, reward: float | None = None, finished: bool = False) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)], reward=reward, finished=finished)


class Peer(Environment):
    """Everything the client looks at."""

    def __init__(
        self, task_spec: Mapping[str, Any] | None = None, secrets: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(task_spec=dict(task_spec or {}), secrets=dict(secrets or {}))
        self.secrets = dict(secrets or {})
        self.count = 0.0

    @classmethod
    def list_splits(cls) -> Sequence[Any]:
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[Any]:
        return [{"id": i} for i in range(450 if split == "train" else 3)]

    async def setup(self) -> None:
        await asyncio.sleep(self.task_spec.get("setup_s", 0))
        if self.task_spec.get("setup_fails"):
            raise RuntimeError("no setup today")

    async def get_prompt(self) -> Sequence[Any]:
        return [TextBlock(text=f"task {self.task_spec.get('id')}")]

    @tool
    async def add(self, args: Number) -> ToolOutput:
        """Add to the count; over at 3."""
        self.count += args.number
        return said(f"{self.count:g}", reward=args.number, finished=self.count >= 3)

    @tool
    async def boom(self) -> ToolOutput:
        """Raise."""
        raise RuntimeError("boom, it said")

    @tool
    async def die(self) -> ToolOutput:
        """Take the process along."""
        os._exit(3)

    @tool
    async def echo(self, args: Text) -> ToolOutput:
        """Echo."""
        return said(args.text)

    @tool
    async def slow(self, args: Number) -> ToolOutput:
        """Count after a while."""
        self.count += 1
        await asyncio.sleep(args.number)
        return said(f"{self.count:g}")

    @tool
    async def spaces(self, args: Number) -> ToolOutput:
        """Many spaces."""
        return said(" " * int(args.number))

    @tool
    async def whoami(self) -> ToolOutput:
        """The secrets."""
        secrets = {name: value for name, value in self.secrets.items() if value}
        return said(json.dumps(secrets))

    if terminal is not None:

        @terminal
        @tool
        async def answer(self, args: Text) -> ToolOutput:
            """The last word."""
            return said(f"answered {args.text}", reward=1.0, finished=True)

    if CAN_SCORE:

        async def score_group(self, candidates: Sequence[Any]) -> Sequence[Any]:
            return [float(len(candidate.messages)) for candidate in candidates]


class Second(Environment):
    """Scores nothing."""

    @classmethod
    def list_splits(cls) -> Sequence[Any]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[Any]:
        return [{"id": "second"}]

    async def get_prompt(self) -> Sequence[Any]:
        return [TextBlock(text="second")]

    @tool
    async def nothing(self) -> ToolOutput:
        """Nothing."""
        return said("")
