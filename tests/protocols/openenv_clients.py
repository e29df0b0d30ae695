"""Released ``openenv`` clients in processes of their own, given what to do line by line."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ..interop.venvs import python_for

__all__ = ["OpenEnvClient", "killed_at_the_end", "openenv_client"]

_DRIVER = Path(__file__).parent / "drivers" / "openenv_client.py"
_LIMIT_S = 90.0


class _Driver:
    """A process with any number of clients of one release, whose import takes seconds."""

    def __init__(self, release: tuple[str, str]) -> None:
        self._numbers = itertools.count()
        self._process = subprocess.Popen(
            [str(python_for(*release)), str(_DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "NO_PROXY": "*"},
        )

    def open(self, kind: str, url: str, headers: dict[str, str]) -> int:
        number = next(self._numbers)
        answer = self.ask(client=number, do="open", kind=kind, url=url, headers=headers)
        assert "error" not in answer, answer
        return number

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
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

    def end(self) -> None:
        """Gone without a word."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@cache
def _shared(release: tuple[str, str]) -> _Driver:
    driver = _Driver(release)
    atexit.register(driver.end)
    return driver


class OpenEnvClient:
    """Handle of one client."""

    def __init__(self, driver: _Driver, number: int) -> None:
        self._driver, self._number = driver, number

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """``{"is": …}`` or ``{"error": text}``."""
        return self._driver.ask(client=self._number, do=do, **arguments)

    def do(self, do: str, **arguments: Any) -> Any:
        """What came back; an error fails the test."""
        answer = self.ask(do, **arguments)
        assert "error" not in answer, answer
        return answer["is"]


@contextmanager
def openenv_client(release: tuple[str, str], kind: str, url: str, **headers: str) -> Iterator[OpenEnvClient]:
    """``kind``: ``generic`` or ``tools``."""
    driver = _shared(release)
    client = OpenEnvClient(driver, driver.open(kind, url, headers))
    try:
        yield client
    finally:
        client.ask("leave")


@contextmanager
def killed_at_the_end(release: tuple[str, str], kind: str, url: str) -> Iterator[OpenEnvClient]:
    """The same in a process for itself, which ends without a word."""
    driver = _Driver(release)
    try:
        yield OpenEnvClient(driver, driver.open(kind, url, {}))
    finally:
        driver.end()
