"""An environment whose author has a format of their own for the log."""

from __future__ import annotations

import logging
import sys

from orsay import Environment, tool

_log = logging.getLogger("an.author")
_log.propagate = False
_handler = logging.StreamHandler(sys.stderr)
_handler.setFormatter(logging.Formatter("seen in <%(trace)s>: %(message)s"))
_log.addHandler(_handler)
_log.warning("loaded")


class Formatted(Environment):
    """Writes to the log wherever it can."""

    splits = {"train": [{}]}

    def setup(self) -> None:
        _log.warning("setup")

    async def teardown(self) -> None:
        _log.warning("teardown")

    def prompt(self) -> str:
        _log.warning("prompt")
        return "Hello"

    @tool
    async def act(self) -> str:
        """On the event loop."""
        _log.warning("act")
        return "done"
