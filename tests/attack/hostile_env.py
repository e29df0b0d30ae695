"""An environment whose every text tries to steer a terminal: splits, prompts, tools, results, faults."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from orsay import Environment, Message, TextBlock, ToolOutput, terminal, tool
from pydantic import Field

STEERING = (
    "[/red][bold]\x1b[2J\x9b31m\x9d0;title\x9c\x85\x7f\x00\x08\x07\u202e\u2066\u2029\u2028\u202a"
    ":smile:\rorsay: forged"
)


class Hostile(Environment):
    """Hostile."""

    splits: ClassVar = {f"train{STEERING}": [{"n": 0}]}

    def prompt(self) -> list[Message]:
        return [Message(role="user", blocks=[TextBlock(text=f"Prompt {STEERING}")])]

    @tool
    def look(
        self,
        text: Annotated[
            str, Field(description=f"Argument {STEERING}", json_schema_extra={"default": STEERING})
        ] = "",
    ) -> ToolOutput:
        seen: dict[str, Any] = {f"key {STEERING}": f"value {STEERING}"}
        return ToolOutput(blocks=[TextBlock(text=f"Result {STEERING}")], metadata=seen, reward=0.5)

    look.__doc__ = f"Tool {STEERING}"

    @tool
    def fail(self) -> str:
        """Raise an exception."""
        raise RuntimeError(f"Fault {STEERING}")

    @terminal
    @tool
    def answer(self, message: str) -> ToolOutput:
        """End."""
        return ToolOutput(blocks=[TextBlock(text=f"Over {STEERING}")], reward=1.0, finished=True)
