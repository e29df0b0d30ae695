"""Processes that a program spawns by ``multiprocessing``, forked where the program's imports were done.

A spawned process imports again all that it needs, with TRL eight seconds of CPU. ``split_off`` is called in a
program of a fork server before it runs, and leaves a fork behind, the *template*, which has what the fork
server imported and nothing of the program. It forks once more for each process that is spawned; that runs
the command which a fresh interpreter would have been given, and reads all its objects from the same pipe.
Where the system is not Linux, such processes are fresh.
"""

from __future__ import annotations

import fcntl
import functools
import os
import socket
import sys
from collections.abc import Sequence
from multiprocessing import util
from typing import Any

from tests.support.forkserver import to_the_end
from tests.support.process_template import fork_for, fork_from

__all__ = ["split_off"]

_MARK = "--multiprocessing-fork"  # the last argument of a spawned interpreter


def split_off() -> None:
    """From now on, what this process spawns is forked from a template; the process is single-threaded."""
    if sys.platform != "linux":
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        fork_for(theirs, _become)
    theirs.close()
    execute = util.spawnv_passfds

    def spawn(path: Any, arguments: Sequence[Any], descriptors: Sequence[int]) -> int:
        if arguments[-1] != _MARK:
            return execute(path, arguments, descriptors)
        words = [os.fsdecode(each) for each in arguments]
        request = {
            "code": words[words.index("-c") + 1],
            "arguments": words[words.index("-c") + 2 :],
            "descriptors": list(descriptors),
            "cwd": os.getcwd(),
            "env": dict(os.environ),
        }
        return fork_from(ours, request, list(descriptors))

    util.spawnv_passfds = spawn  # type: ignore[assignment]  # spelled otherwise


def _become(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    os._exit(to_the_end(functools.partial(_run, request, descriptors)))


def _run(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """What the interpreter would have run, with the descriptors where its arguments say that they are."""
    above = max(*descriptors, *request["descriptors"]) + 1
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD, above) for each in descriptors]
    for each in descriptors:
        os.close(each)
    for each, number in zip(moved, request["descriptors"], strict=True):
        os.dup2(each, number)
        os.close(each)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["-c", *request["arguments"]]
    exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
