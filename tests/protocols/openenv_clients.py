"""A released ``openenv`` client in a process of its own, given what to do line by line."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..interop.venvs import python_for

__all__ = ["OpenEnvClient", "openenv_client"]

_DRIVER = Path(__file__).parent / "drivers" / "openenv_client.py"
_LIMIT_S = 90.0


class OpenEnvClient:
    """Handle of the process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """``{"is": …}`` or ``{"error": text}``."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        late = threading.Timer(_LIMIT_S, self._process.kill)
        late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        assert line, "the client died"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def do(self, do: str, **arguments: Any) -> Any:
        """What came back; an error fails the test."""
        answer = self.ask(do, **arguments)
        assert "error" not in answer, answer
        return answer["is"]

    def kill(self) -> None:
        """Gone without a word."""
        self._process.kill()


@contextmanager
def openenv_client(release: tuple[str, str], kind: str, url: str, **headers: str) -> Iterator[OpenEnvClient]:
    """``kind``: ``generic`` or ``tools``."""
    command = [str(python_for(*release)), str(_DRIVER), kind, url, json.dumps(headers)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "NO_PROXY": "*"}
    )
    try:
        yield OpenEnvClient(process)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
