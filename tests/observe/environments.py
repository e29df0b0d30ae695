"""An environment whose calls answer, fail, take time and write to the log."""

from __future__ import annotations

import logging
import os
import time

from orsay import Environment, TextBlock, ToolOutput, terminal, tool

_log = logging.getLogger("an.author")


class Bench(Environment):
    """Something to measure."""

    splits = {"train": [{"number": number} for number in range(3)]}

    def prompt(self) -> str:
        return f"Task {self.task_spec['number']}"

    @tool
    def add(self, one: int, two: int) -> ToolOutput:
        """Add."""
        _log.warning("adding %s and %s", one, two)
        return ToolOutput(blocks=[TextBlock(text=str(one + two))], reward=0.5)

    @tool
    def fail(self) -> str:
        """Raise."""
        raise ValueError(f"broken with {self.secrets.get('token')}")

    @tool
    def rest(self, seconds: float) -> str:
        """Take time."""
        time.sleep(seconds)
        return "rested"

    @tool
    def die(self) -> str:
        """Take the process along."""
        os._exit(3)

    @terminal
    @tool
    def answer(self, text: str) -> ToolOutput:
        """The end."""
        return ToolOutput(blocks=[TextBlock(text="done")], reward=1.0, finished=True)


class Other(Environment):
    """Something beside it."""

    splits = {"train": [{}]}

    def prompt(self) -> str:
        return "Hello"

    @tool
    def echo(self, text: str) -> str:
        """The same again."""
        return text
