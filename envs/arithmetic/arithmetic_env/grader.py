"""Grading with math-verify, in a process of its own.

A comparison may take unbounded time (a tower of powers is enough), and math-verify's own time limits are
alarms, which work in a main thread only. So a child process compares, with limits on CPU time and memory. A
text that exceeds them is wrong; other failures raise, since a failed grader must not look like a wrong
answer.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

__all__ = ["Grader", "GraderFailed", "Verdict"]

_CHILD = Path(__file__).with_name("grader_child.py")
_UNREADABLE_EXITS = (-signal.SIGPROF, -signal.SIGSEGV)


class GraderFailed(RuntimeError):
    """The grader could not be run, so there is no verdict about the answer."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a message, with the text that was read as its answer."""

    correct: bool
    read: str


class Grader:
    """Pool of grading processes, which start on first use and end with this process.

    Thread safe. A message may use ``cpu_limit_s`` of processor time; ``wall_limit_s`` is for a child that
    neither answers nor uses the processor.
    """

    def __init__(self, *, children: int = 2, cpu_limit_s: float = 3.0, wall_limit_s: float = 60.0) -> None:
        self._slots = threading.BoundedSemaphore(children)
        self._idle: list[_Child] = []
        self._cpu_limit_s = cpu_limit_s
        self._wall_limit_s = wall_limit_s
        self._closes_at_exit = False

    def grade(self, message: str, answer: Fraction) -> Verdict:
        """Compare the answer given in ``message`` with ``answer``. Raises GraderFailed."""
        request = json.dumps({"message": message, "answer": [answer.numerator, answer.denominator]})
        with self._slots:
            child = self._take()
            reply = child.ask(request, self._wall_limit_s)
            if reply is not None:
                self._idle.append(child)
                verdict = json.loads(reply)
                return Verdict(bool(verdict["correct"]), str(verdict["read"]))
            code = child.close()
        if code in _UNREADABLE_EXITS:
            return Verdict(False, "")
        raise GraderFailed(f"the grading process ended with exit status {code} and without a verdict")

    def idle_pids(self) -> list[int]:
        """Process ids of the children that wait for a message."""
        return [child.pid for child in self._idle]

    def close(self) -> None:
        """End the idle children; the next message starts new ones."""
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> _Child:
        if not self._closes_at_exit:
            self._closes_at_exit = True
            atexit.register(self.close)
        while self._idle:
            child = self._idle.pop()
            if child.usable():
                return child
            child.close()
        return _Child(self._cpu_limit_s)


class _Child:
    def __init__(self, cpu_limit_s: float) -> None:
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_CHILD), str(cpu_limit_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def usable(self) -> bool:
        # A fork of the owner must not read from the same pipe.
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, request: str, wall_limit_s: float) -> str | None:
        """One line of reply, or None when the process ended instead."""
        assert self._process.stdin is not None and self._process.stdout is not None
        watchdog = threading.Timer(wall_limit_s, self._process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            return self._process.stdout.readline() or None
        except BrokenPipeError:
            return None
        finally:
            watchdog.cancel()

    def close(self) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        if self._owner != os.getpid():
            return 0
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            # The process ended before it read the buffered request.
            self._process.kill()
        self._process.stdout.close()
        return self._process.wait()
