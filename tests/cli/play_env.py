"""An environment with every kind of argument, image and failure that ``orsay play`` shows a person."""

from __future__ import annotations

import base64
import os
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal

from orsay import Environment, ImageBlock, Message, TextBlock, ToolOutput, terminal, tool
from pydantic import BaseModel, Field

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


class Playground(Environment):
    """One of each."""

    splits: ClassVar = {"train": [{"n": 0}, {"n": 1}], "test": [{"n": 2}]}

    def prompt(self) -> list[Message]:
        picture = ImageBlock(data=base64.b64encode(PIXEL).decode(), mimeType="image/png")
        return [
            Message(role="system", blocks=[TextBlock(text="Be kind.\x1b[2J")]),
            Message(role="user", blocks=[TextBlock(text=f"Task {self.task['n']}"), picture]),
        ]

    @tool
    def everything(
        self,
        text: str,
        count: Annotated[int, Field(ge=1, le=9)],
        size: float = 1.5,
        sure: bool = False,
        colour: Colour = Colour.RED,
        mode: Literal["fast", "slow"] | None = None,
        words: Annotated[list[str], Field(max_length=3)] = [],  # noqa: B006  # never changed
        point: Point | None = None,
    ) -> ToolOutput:
        """Take all kinds of arguments.

        Args:
            text: Any text.
            count: How many.
        """
        seen: dict[str, Any] = {
            "text": text, "count": count, "size": size, "sure": sure, "colour": colour.value,
            "mode": mode, "words": words, "point": point and point.model_dump(),
        }  # fmt: skip
        return ToolOutput(blocks=[TextBlock(text="taken")], metadata=seen, reward=0.5)

    @tool
    def fail(self) -> str:
        """Raise an exception."""
        raise RuntimeError("out of luck")

    @tool
    def crash(self) -> str:
        """End the process that holds the session."""
        os._exit(3)

    @terminal
    @tool
    def answer(self, message: str) -> ToolOutput:
        """Take the final answer."""
        return ToolOutput(blocks=[TextBlock(text=f"You said: {message}")], reward=1.0, finished=True)
