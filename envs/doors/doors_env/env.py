"""The doors environment: the word that opens a door is found by looking at that door first.

Two calls win an episode: ``look`` at the door that the prompt names, then ``open`` with the word seen there.
The reward is 1.0 or 0.0, given once, at the end.
"""

from __future__ import annotations

from typing import ClassVar

from orsay import Environment, JSONObject, TextBlock, ToolOutput, tool

from .tasks import TASKS, code_word, own_task

__all__ = ["DoorsEnvironment"]


class DoorsEnvironment(Environment):
    """Look at a door for its code word, then open it."""

    replayable = True

    splits: ClassVar = TASKS

    def __init__(self, task_spec: JSONObject | None = None, secrets: dict[str, str] | None = None) -> None:
        """Raises ValueError for a task that was not made here."""
        super().__init__(task_spec, secrets)
        task = own_task(self.task_spec)
        self.door: int = task["door"]
        self._word = code_word(task)
        self._over = False

    def prompt(self) -> str:
        return f"Open door {self.door}. Its code word is written on it."

    @tool
    async def look(self, door: int) -> str:
        """Look at a door.

        Args:
            door: Number of the door.
        """
        if door != self.door:
            return "Nothing is written on that door."
        return f"On door {door} is written: {self._word}"

    @tool
    async def open(self, code: str) -> ToolOutput:
        """Open the door. There is one attempt.

        Args:
            code: The code word.
        """
        if self._over:
            return ToolOutput(blocks=[TextBlock(text="There was one attempt.")], finished=True)
        self._over = True
        right = code == self._word
        text = "The door opens." if right else "The door stays shut."
        return ToolOutput(blocks=[TextBlock(text=text)], reward=float(right), finished=True)
