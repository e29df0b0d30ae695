"""A released client in a process of its own, given what to play line by line."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .venvs import python_for

__all__ = ["Player", "Players", "player"]

_DRIVER = Path(__file__).parent / "drivers" / "play.py"
_ANSWER_LIMIT_S = 90.0


class Player:
    """Handle of a driver process. Its methods wait for answers, never longer than a minute and a half."""

    def __init__(self, package: str, version: str, process: subprocess.Popen[str], url: str) -> None:
        self.package, self.version = package, version
        self._url = url
        self._process = process
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reported: dict[str, dict[str, Any]] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self._answer()["client"] == version

    @property
    def release(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split("."))

    def play(
        self, scenario: str, environment: str, *, variant: str | None = None, url: str = "", **args: Any
    ) -> dict[str, Any]:
        """What the driver reports of ``scenario``. A crash of the driver's own code fails the test.

        ``url``: another server than its own, for one more file: the import of some releases takes seconds.
        """
        request = {"scenario": scenario, "environment": environment, "variant": variant, "args": args}
        request["url"] = url or self._url
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert "crashed" not in answer, f"{self.package} {self.version}, {scenario}:\n{answer.get('crashed')}"
        return answer

    def once(self, scenario: str, environment: str, **more: Any) -> dict[str, Any]:
        """As ``play``, asked once however many tests look at it: old clients retry refusals for seconds."""
        key = json.dumps([scenario, environment, more], sort_keys=True)
        if key not in self._reported:
            self._reported[key] = self.play(scenario, environment, **more)
        return self._reported[key]

    def _answer(self) -> dict[str, Any]:
        # Clients print too; an answer is a line that is a JSON object.
        while True:
            line = self._lines.get(timeout=_ANSWER_LIMIT_S)
            assert line is not None, f"the driver of {self.package} {self.version} ended early"
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # openreward 0.1.62 leaves processes behind that keep the pipe open
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._thread.join(10)
        self._process.stdout.close()


@contextmanager
def player(package: str, version: str, url: str) -> Iterator[Player]:
    """The released client ``package version``, playing against ``url``."""
    python = python_for(package, version)
    process = subprocess.Popen(
        [str(python), str(_DRIVER), package],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    playing = None
    try:
        playing = Player(package, version, process, url)
        yield playing
    finally:
        if playing is None:
            process.kill()
            process.communicate()
        else:
            playing.close()


class Players:
    """Released clients of one server, or of none yet, each started when first asked for."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._url, self._stack = url, stack
        self._started: dict[tuple[str, str], Player] = {}

    def get(self, package: str, version: str) -> Player:
        if (package, version) not in self._started:
            started = self._stack.enter_context(player(package, version, self._url))
            self._started[package, version] = started
        return self._started[package, version]
