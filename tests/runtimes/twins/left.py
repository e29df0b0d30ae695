"""One of two environments of one name."""

from __future__ import annotations

from orsay import Environment, tool


class Versioned(Environment):
    """Never gets to play."""

    splits = {"train": [{}]}

    def prompt(self) -> str:
        return ""

    @tool
    def noop(self) -> str:
        """Do nothing."""
        return ""
