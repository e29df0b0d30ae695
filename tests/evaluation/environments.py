"""Environments that evaluations are played on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from orsay import Environment, ImageBlock, TextBlock, ToolOutput, terminal, tool

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="


def _times(name: str) -> int:
    """How often this was asked for this name, in all processes; 1 the first time."""
    with (Path(os.environ["EVALUATION_DIARY"]) / name).open("a") as file:
        file.write(".")
        file.flush()
        return file.tell()


class Sums(Environment):
    """Add two numbers."""

    splits: ClassVar = {
        "train": [{"a": n, "b": 1} for n in range(8)],
        "test": [{"a": n, "b": 2 * n} for n in range(12)],
    }

    def prompt(self) -> str:
        return f"What is {self.task['a']} plus {self.task['b']}?"

    @tool
    def peek(self) -> ToolOutput:
        """A little for asking."""
        return ToolOutput(blocks=["It is a whole number."], reward=0.25)

    @tool
    def note(self, text: str) -> str:
        """Write something down.

        Args:
            text: What to remember.
        """
        return f"noted {text}"

    @tool
    def answer(self, value: int) -> ToolOutput:
        """Answer.

        Args:
            value: The sum.
        """
        right = value == self.task["a"] + self.task["b"]
        return ToolOutput(blocks=["Right." if right else "Wrong."], reward=float(right), finished=True)


class Pictures(Environment):
    """Look at pictures."""

    splits: ClassVar = {"test": [{}]}

    def prompt(self) -> list[Any]:
        return [TextBlock(text="What is this?"), ImageBlock(data=PIXEL, mimeType="image/png")]

    @tool
    def look(self) -> ToolOutput:
        """Look closer."""
        return ToolOutput(blocks=[TextBlock(text="closer:"), ImageBlock(data=PIXEL, mimeType="image/png")])

    @tool
    def answer(self, text: str) -> ToolOutput:
        """Say what it is."""
        return ToolOutput(blocks=["Thank you."], reward=1.0, finished=True)


class Essay(Environment):
    """Write something."""

    splits: ClassVar = {"test": [{"least": 3}, {"least": 100}]}

    def prompt(self) -> str:
        return f"Write {self.task['least']} words."

    @terminal
    @tool
    def submit(self, text: str) -> ToolOutput:
        """Hand it in."""
        enough = len(text.split()) >= self.task["least"]
        return ToolOutput(blocks=["Thank you."], reward=float(enough), finished=True)


class Faulty(Environment):
    """Task 0 loses its worker once after a first step, task 1 always raises, the others are well."""

    splits: ClassVar = {"test": [{"n": n} for n in range(4)]}

    def setup(self) -> None:
        self.steps = 0

    def prompt(self) -> str:
        return "Take two steps."

    @tool
    def step(self) -> ToolOutput:
        """Take a step."""
        self.steps += 1
        if self.task["n"] == 0 and self.steps == 2 and _times("lost") == 1:
            os._exit(1)
        if self.task["n"] == 1:
            raise RuntimeError("this task is broken")
        return ToolOutput(blocks=[f"step {self.steps}"], reward=float(self.steps), finished=self.steps == 2)


class Moody(Environment):
    """Answers otherwise in each session, and loses its worker after the first step of the first one."""

    splits: ClassVar = {"test": [{}]}

    def setup(self) -> None:
        self.session, self.steps = _times("moody"), 0

    def prompt(self) -> str:
        return "Take two steps."

    @tool
    def step(self) -> ToolOutput:
        """Take a step."""
        self.steps += 1
        if self.session == 1 and self.steps == 2:
            os._exit(1)
        return ToolOutput(blocks=[f"session {self.session}"], reward=1.0, finished=self.steps == 2)


class Odd(Environment):
    """Costs a worker each time."""

    splits: ClassVar = {"test": [{"n": n} for n in range(40)]}

    def prompt(self) -> str:
        return "Do not touch."

    @tool
    def touch(self) -> str:
        """Touch it."""
        raise RuntimeError("it broke")


class Slow(Environment):
    """Waits until a file is there."""

    splits: ClassVar = {"test": [{"n": n} for n in range(8)]}

    def setup(self) -> None:
        _times("slow-opened")

    def teardown(self) -> None:
        _times("slow-closed")

    def prompt(self) -> str:
        return "Wait."

    @tool
    async def wait(self) -> ToolOutput:
        """Wait; tasks from 2 on take long."""
        import asyncio

        gate = Path(os.environ["EVALUATION_DIARY"]) / "open"
        while self.task["n"] >= 2 and not gate.exists():
            await asyncio.sleep(0.05)
        return ToolOutput(blocks=["done"], reward=1.0, finished=True)


class Hall(Environment):
    """Look behind doors until there was a look too many."""

    splits: ClassVar = {"test": [{"looks": 1}, {"looks": 2}, {"looks": 100}]}

    def setup(self) -> None:
        self.doors: list[int] = []

    def prompt(self) -> str:
        return "Find the door."

    @tool
    def look(self, door: int) -> ToolOutput:
        """Look behind a door."""
        self.doors.append(door)
        over = len(self.doors) == self.task["looks"]
        return ToolOutput(blocks=[f"doors {self.doors}"], reward=door / 10, finished=over)
