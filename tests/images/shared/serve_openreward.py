"""Serves ``Echo`` and the environments of ``kit.py`` with the released openreward package, in its image."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:  # the names are the same, and openreward is not among the test dependencies
    from orsay import Environment, Split, TextBlock, ToolOutput, tool
else:
    from openreward.environments import Environment, Split, TextBlock, ToolOutput, tool


class Said(BaseModel):
    """What the model says."""

    text: str


class Echo(Environment):
    """Repeat the word to win."""

    @classmethod
    def list_splits(cls) -> list[Split]:
        return [Split(name="train", type="train")]

    @classmethod
    def list_tasks(cls, split: str) -> list[Any]:
        return [{"id": f"echo-{word}", "target": word} for word in ("hello", "world", "stone", "river")]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text=f"Call echo with: {self.task_spec['target']}")]

    @tool
    async def echo(self, said: Said) -> ToolOutput:
        """Say the word."""
        right: Any = said.text == self.task_spec["target"]
        return ToolOutput(
            blocks=[TextBlock(text="match" if right else "no match")], reward=float(right), finished=right
        )


if __name__ == "__main__":
    kit = import_module("kit")  # lies beside this file in the image
    server = import_module("openreward.environments").Server([Echo, kit.Kit, kit.Second])
    server.run(host="0.0.0.0", port=8080)
