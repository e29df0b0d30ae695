"""Processes that a keeper starts, and what they inherit."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Iterable

__all__ = [
    "close_others",
    "forked",
    "has_ended",
    "in_memory_file",
    "joined",
    "pass_on",
    "rlimits_hold",
]


def forked(launch: Callable[[], object], errors: int) -> int:
    """A child that does this and does not come back; what goes wrong is written to ``errors``."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        launch()
    except BaseException as exc:
        os.write(errors, f"{exc}\n".encode(errors="replace"))
    finally:
        os._exit(71)


def rlimits_hold() -> bool:
    """Whether a limit of processes holds for us: not where we are root of the machine after all."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
            if not os.fork():
                os._exit(0)
        except BlockingIOError:
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def pass_on(*descriptors: int) -> None:
    """Leave these and the first three to the program that replaces this process, and no others."""
    for each in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # that of the list itself
            os.set_inheritable(each, each <= 2 or each in descriptors)


def close_others(kept: int) -> None:
    """Close all descriptors but that one and the first three, in a process that goes on as it is."""
    for each in map(int, os.listdir("/proc/self/fd")):
        if each > 2 and each != kept:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(each)


def has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def in_memory_file(name: str, content: bytes) -> int:
    """A descriptor that a program we start reads it from."""
    file = os.memfd_create(name, 0)
    with os.fdopen(os.dup(file), "wb") as opened:
        opened.write(content)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def joined(words: Iterable[str]) -> bytes:
    """Words as bwrap reads them from a descriptor. Raises ValueError for one that would count as several."""
    raw = [os.fsencode(each) for each in words]
    if any(b"\0" in each for each in raw):
        raise ValueError("an argument of bwrap cannot hold a NUL")
    return b"".join(each + b"\0" for each in raw)
