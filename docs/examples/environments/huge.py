from collections.abc import Sequence
from typing import Any

from orsay import Environment, ToolOutput, tool


class Sums(Sequence[dict[str, int]]):
    """A hundred million tasks, none of which is stored: each is computed from its index."""

    def __len__(self) -> int:
        return 100_000_000

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return {"a": index // 10_000, "b": index % 10_000}


class Addition(Environment):
    """Add two numbers."""

    splits = {"train": Sums()}

    def prompt(self) -> str:
        return f"How much is {self.task['a']} + {self.task['b']}?"

    @tool
    def answer(self, total: int) -> ToolOutput:
        """Give the sum."""
        right = total == self.task["a"] + self.task["b"]
        return ToolOutput(blocks=["Right." if right else "Wrong."], reward=float(right), finished=True)
