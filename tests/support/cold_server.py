"""A server whose environment loads for as long as a test wants."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from .server_process import ServerProcess
from .waiting import until

__all__ = ["ColdServer", "cold_server"]

_SOURCE = """\
import pathlib, time

pathlib.Path({mark!r}).touch()
while not pathlib.Path({gate!r}).exists():
    time.sleep(0.02)

from orsay import Environment, tool


class Late(Environment):
    splits = {{"train": [{{"number": 1}}]}}

    def prompt(self) -> str:
        return "here"

    @tool
    def say(self) -> str:
        "Say so."
        return "said"
"""


class ColdServer:
    """It listens at ``url``, and hosts ``late`` after ``load``."""

    def __init__(self, process: ServerProcess, url: str, gate: Path) -> None:
        self.process = process
        self.url = url
        self._gate = gate

    def load(self) -> None:
        """Let the import of the environment come to its end."""
        self._gate.touch()


@asynccontextmanager
async def cold_server(folder: Path, *options: str, **settings: str) -> AsyncIterator[ColdServer]:
    """A server that loads its environment, in which nothing can be played yet."""
    mark, gate, source = folder / "loading", folder / "gate", folder / "late.py"
    source.write_text(_SOURCE.format(mark=str(mark), gate=str(gate)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {f"ORSAY_{name.upper()}": value for name, value in settings.items()}
    process = ServerProcess(
        [f"{source}:Late", "--port", str(port), *options], {"ORSAY_WORKERS": "1", **variables}
    )
    try:
        await until(mark.exists)  # by then it listens
        yield ColdServer(process, f"http://127.0.0.1:{port}", gate)
    finally:
        process.end()
