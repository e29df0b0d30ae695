"""Environments whose rewards show whether each call counted exactly once, for tests that kill the server."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import ClassVar

from orsay import Environment, JSONObject, ToolOutput, tool


class Sum(Environment):
    """Add numbers up, then end. The reward is the sum, with the number of calls after the point."""

    replayable = True
    splits: ClassVar = {"train": [{"first": i} for i in range(1000)]}

    def setup(self) -> None:
        self.total = int(self.task_spec["first"])
        self.calls = 0

    def prompt(self) -> str:
        return f"Begin with {self.task_spec['first']}."

    @tool
    async def add(self, number: int, seconds: float = 0.0) -> ToolOutput:
        """Add a number, slowly if asked."""
        await asyncio.sleep(seconds)
        self.total += number
        self.calls += 1
        return ToolOutput(blocks=[str(self.total)], reward=0.0)

    @tool
    def fail(self) -> ToolOutput:
        """Count, and raise."""
        self.calls += 1
        raise ValueError(f"failed after {self.calls} calls")

    @tool
    def die(self) -> str:
        """Take the worker along."""
        os._exit(3)

    @tool
    def end(self) -> ToolOutput:
        """The end."""
        return ToolOutput(blocks=["over"], reward=self.total + self.calls / 100, finished=True)


class Broken(Sum):
    """Its constructor or its setup fails, as the task says."""

    def __init__(self, task_spec: JSONObject, secrets: dict[str, str] | None = None) -> None:
        super().__init__(task_spec, secrets)
        if task_spec.get("broken") == "constructor":
            raise ValueError("no constructor")

    def setup(self) -> None:
        if self.task_spec.get("broken") == "setup":
            raise ValueError("no setup")
        super().setup()


class Mortal(Sum):
    """The same, without being replayable."""

    replayable = False


class Fickle(Sum):
    """Says that it can be replayed, and answers differently in each process."""

    @tool
    def where(self) -> str:
        """The process."""
        return str(os.getpid())


class Sets(Sum):
    """Prints what has another order in each process whose hashes have a random seed."""

    @tool
    def names(self) -> str:
        """A set of strings."""
        return repr({f"name {number}" for number in range(50)})

    @tool
    def where(self) -> str:
        """The process."""
        return str(os.getpid())


class Doomed(Sum):
    """Plays once; whatever plays it again takes its worker along."""

    @tool
    def once(self, file: str) -> str:
        """Go on if nobody did before."""
        mark = Path(file)
        if mark.exists():
            with mark.open("a") as deaths:
                deaths.write("again\n")
            os._exit(4)
        mark.touch()
        return "went on"


class Witness(Sum):
    """Tells in a file how its sessions are torn down, slowly if asked."""

    def teardown(self) -> None:
        with Path(str(self.task_spec["file"])).open("a") as file:
            file.write(f"{self.total}\n")
        time.sleep(float(self.task_spec.get("teardown_s", 0)))
