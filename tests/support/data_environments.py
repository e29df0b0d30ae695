"""Environments whose code reads files of its own at /orwd_data, as soon as it is imported."""

from __future__ import annotations

import os
from pathlib import Path

from orsay import Environment, TextBlock, ToolOutput, tool

DATA = Path("/orwd_data")
AT_IMPORT = sorted(os.listdir(DATA)) if DATA.is_dir() else None


class Library(Environment):
    """Tells what its process sees."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, str]]:
        return [{"id": "one"}]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="Look.")]

    @tool
    def look(self) -> ToolOutput:
        """Tell names and contents of the data, and what writing gives."""
        try:
            (DATA / "new").write_text("x")
            wrote = "wrote"
        except OSError as exc:
            wrote = type(exc).__name__ + f" {exc.errno}"
        found = {path.name: path.read_text() for path in sorted(DATA.iterdir())} if DATA.is_dir() else None
        told = {"import": AT_IMPORT, "now": found, "wrote": wrote, "pid": os.getpid(), "cwd": os.getcwd()}
        return ToolOutput(blocks=[TextBlock(text=repr(told))])

    @tool
    def die(self) -> ToolOutput:
        """End the process."""
        os._exit(3)


class Archive(Library):
    """Another of the kind."""
