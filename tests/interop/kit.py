"""An environment that shows everything clients and checks look at, for any of the three authoring packages.

ORSAY_KIT names the package whose classes it uses: ``orsay`` (default), ``openreward.environments`` or
``ors``. What a package does not know (terminal tools, say) is left out of the class there.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from orsay import Environment, GroupScore, ImageBlock, Split, TextBlock, ToolOutput, terminal, tool
else:
    _source = import_module(os.environ.get("ORSAY_KIT", "orsay"))
    Environment, tool = _source.Environment, _source.tool
    ImageBlock, TextBlock, ToolOutput, Split = (
        _source.ImageBlock,
        _source.TextBlock,
        _source.ToolOutput,
        _source.Split,
    )
    terminal = getattr(_source, "terminal", None)
    GroupScore = getattr(_source, "GroupScore", None)

__all__ = ["Kit", "Second"]

_PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n not a whole image").decode()


class Text(BaseModel):
    """Some text."""

    text: str = Field(description="Comes back as it is.")


class Number(BaseModel):
    """A number with limits."""

    n: int = Field(ge=0, le=1000)


class Seconds(BaseModel):
    """How long."""

    seconds: float = Field(ge=0, le=60, examples=[0.01])
    text: str = "rested"


class Nothing(BaseModel):
    """No fields at all."""


class Answer(BaseModel):
    """The last message of a model."""

    answer: str


class Kit(Environment):
    """Every kind of tool, answer and failure."""

    replayable = True

    @classmethod
    def list_splits(cls) -> Sequence[Split | str]:
        return ["train", Split(name="held-out", type="test"), "empty"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        count = {"train": 12, "held-out": 3, "empty": 0}[split]
        return [
            {"id": f"{split}-{i}", "goal": f"say {i}", "unicode": "héé\u2028 \u0085"} for i in range(count)
        ]

    def __init__(self, task_spec: Any = None, secrets: Any = None) -> None:
        super().__init__(task_spec or {}, secrets or {})
        # Not every package keeps them.
        self.secrets = dict(secrets or {})

    async def setup(self) -> None:
        self.count = 0

    def get_prompt(self) -> list[Any]:
        return [
            TextBlock(text=f"  Task {self.task_spec.get('id')}: {self.task_spec.get('goal')}\n"),
            ImageBlock(data=_PIXEL, mimeType="image/png", detail={"note": "pixel"}),
        ]

    @tool
    async def add(self, args: Number) -> ToolOutput:
        """Add to the counter of this session."""
        self.count += args.n
        return ToolOutput(
            blocks=[TextBlock(text=str(self.count))], reward=float(args.n), metadata={"n": args.n}
        )

    @tool
    async def fail(self, args: Text) -> ToolOutput:
        """Raise an exception with this text."""
        raise ValueError(args.text)

    @tool
    async def finish(self, args: Number) -> ToolOutput:
        """End the episode with a reward of n."""
        return ToolOutput(blocks=[TextBlock(text="done")], reward=float(args.n), finished=True)

    @tool
    async def look(self) -> ToolOutput:
        """Say which task this is; takes no arguments."""
        return ToolOutput(blocks=[TextBlock(text=str(self.task_spec.get("id")))], reward=None)

    @tool
    async def picture(self, args: Nothing) -> ToolOutput:
        """A text, an image, a text."""
        blocks = [TextBlock(text="a"), ImageBlock(data=_PIXEL, mimeType="image/png"), TextBlock(text="b")]
        return ToolOutput(blocks=blocks, reward=None)

    @tool
    async def repeat(self, args: Text) -> ToolOutput:
        """Give the text back."""
        return ToolOutput(blocks=[TextBlock(text=args.text)], reward=0.0)

    @tool
    async def reveal(self, args: Nothing) -> ToolOutput:
        """Names of the secrets of this session, and the length of their values."""
        lengths = {name: len(value) for name, value in sorted((self.secrets or {}).items())}
        return ToolOutput(blocks=[TextBlock(text=",".join(lengths))], metadata={"lengths": lengths})

    @tool
    async def slow(self, args: Seconds) -> ToolOutput:
        """Take a while without keeping anyone else from working."""
        await asyncio.sleep(args.seconds)
        return ToolOutput(blocks=[TextBlock(text=args.text)], reward=0.25)

    if terminal is not None:

        @terminal
        @tool
        async def answer(self, args: Answer) -> ToolOutput:
            """Grade the final answer."""
            right = args.answer == self.task_spec.get("goal")
            text = "right" if right else "wrong"
            return ToolOutput(blocks=[TextBlock(text=text)], reward=1.0 if right else 0.0, finished=True)

    if GroupScore is not None:

        async def score_group(self, candidates: Sequence[Any]) -> list[GroupScore]:
            """One point for each letter of the last message; a candidate that says "fail" breaks it."""
            texts = [candidate.messages[-1].blocks[-1].text for candidate in candidates]
            if "fail" in texts:
                raise ValueError("the judge broke")
            return [GroupScore(reward=float(len(text)), metadata={"text": text}) for text in texts]


class Second(Environment):
    """One more environment on the same server, with a single tool."""

    @classmethod
    def list_splits(cls) -> Sequence[Split | str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{"only": True}]

    def get_prompt(self) -> list[Any]:
        return [TextBlock(text="second")]

    @tool
    async def poke(self, args: Text) -> ToolOutput:
        """Answer with what it was poked with."""
        return ToolOutput(blocks=[TextBlock(text=f"poked: {args.text}")], reward=1.0, finished=True)
