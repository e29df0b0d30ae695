"""The echo environment: a task holds a word, and the model wins by sending that word to a tool.

Same tasks, tool, texts that matter and rewards as the echo environment that TRL tests its OpenReward
adapter with, so that a trainer set up for one can be pointed at the other.
"""

from __future__ import annotations

from typing import ClassVar

from orsay import Environment, ListToolsOutput, TextBlock, ToolOutput, ToolSpec, tool

__all__ = ["EchoEnvironment"]

WORDS = ("hello", "world", "trl", "openreward", "spec", "factory", "dataset", "reward")


class EchoEnvironment(Environment):
    """Repeat the target word with one tool call."""

    replayable = True

    splits: ClassVar = {
        "train": [{"id": f"echo-{number}", "target": word} for number, word in enumerate(WORDS)]
    }

    # No constructor, setup or teardown: the server skips inherited ones, which saves time for each session.

    @property
    def target(self) -> str:
        """The word to send. Raises ValueError for a task without one."""
        word = self.task.get("target")
        if not isinstance(word, str):
            raise ValueError("a task of the echo environment holds the word to send under 'target'")
        return word

    def prompt(self) -> str:
        return f"Win by calling the tool `echo` once, with text='{self.target}'."

    @tool
    async def echo(self, text: str) -> ToolOutput:
        """Submit a string: the target word earns reward 1.0 and ends the episode.

        Args:
            text: The string to echo back.
        """
        if text == self.target:
            return ToolOutput(blocks=[TextBlock(text="match")], reward=1.0, finished=True)
        refusal = f"no match (got {text[:200]!r})"
        return ToolOutput(
            blocks=[TextBlock(text=refusal)], reward=float(self.task.get("failure_reward", 0.0))
        )

    def list_task_tools(self) -> ListToolsOutput:
        """List ``hint`` inside sessions only, not in the environment's own listing."""
        hint = ToolSpec(
            name="hint",
            description="Tell how the episode is won. Costs nothing and earns nothing.",
            input_schema={"properties": {}, "title": "Hint", "type": "object"},
        )
        return ListToolsOutput(tools=[hint])

    @tool(shared=False)
    async def hint(self) -> str:
        """Tell how the episode is won."""
        return "Call echo with the word that the prompt asks for, spelled exactly so."
