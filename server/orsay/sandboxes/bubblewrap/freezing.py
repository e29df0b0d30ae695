"""Processes of a sandbox that wait: by a control group, or by signals where there is none."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .cgroups import is_frozen, set_frozen

__all__ = ["frozen"]

_LIMIT_S = 10.0
_LOOK_S = 0.001
_WAITING = "TtZX"  # states of proc_pid_stat(5): stopped, or ended
_CALM = 2
"""Looks in a row that find nothing running: one alone could be outwitted by a process that wakes another."""


@contextmanager
def frozen(group: Path | None, top: int) -> Iterator[None]:
    """Have all processes of a group wait, or, without one, a process and all below it. Raises OSError."""
    until = time.monotonic() + _LIMIT_S
    if group is not None:
        try:
            set_frozen(group, True)
            while not is_frozen(group):
                _pause(until)
            yield
        finally:
            set_frozen(group, False)
        return
    stopped: dict[int, None] = {}
    try:
        calm = 0
        while calm < _CALM:
            running = [pid for pid in _tree(top) if _state(pid) not in _WAITING]
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    stopped[pid] = None
            calm = 0 if running else calm + 1
            _pause(until)
        yield
    finally:
        for pid in reversed(stopped):  # children before their parents, who so hear nothing of it
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _pause(until: float) -> None:
    if time.monotonic() > until:
        raise OSError(errno.EBUSY, f"its processes did not stop within {_LIMIT_S:g} s")
    time.sleep(_LOOK_S)


def _tree(top: int) -> list[int]:
    """A process and those below it, parents first. Orphans are children of the top."""
    found = [top]
    for pid in found:
        with contextlib.suppress(OSError):  # it has ended
            for thread in os.listdir(f"/proc/{pid}/task"):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
