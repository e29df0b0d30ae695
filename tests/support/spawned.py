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
import json
import os
import socket
import sys
import time
from collections.abc import Sequence
from multiprocessing import util
from typing import Any

from tests.support.forkserver import to_the_end
from tests.support.orphans import adopt_orphans

__all__ = ["split_off"]

_MESSAGE_BYTES = 1 << 20
_MOST_DESCRIPTORS = 253  # that Linux sends in one message
_MARK = "--multiprocessing-fork"  # the last argument of a spawned interpreter


def split_off() -> None:
    """From now on, what this process spawns is forked from a template; the process is single-threaded."""
    if sys.platform != "linux":
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
    if os.fork() == 0:
        ours.close()
        _serve(theirs)
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
        adopt_orphans(True)
        try:
            socket.send_fds(ours, [json.dumps(request).encode()], list(descriptors))
            pid, forked = ours.recv(64), ours.recv(64)
        finally:
            adopt_orphans(False)
        if not forked:
            raise RuntimeError("the template of spawned processes has ended")
        return int(pid)

    util.spawnv_passfds = spawn  # type: ignore[assignment]  # spelled otherwise


def _serve(control: socket.socket) -> None:
    """Fork whenever asked to, until the program has ended. Never returns."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, _MOST_DESCRIPTORS)
        if not message:
            os._exit(0)
        between = os.fork()
        if between == 0:
            between = os.getpid()
            spawned = os.fork()
            if spawned:
                control.send(str(spawned).encode())
                os._exit(0)
            control.close()
            while os.getppid() == between:
                time.sleep(0.0005)
            os._exit(to_the_end(functools.partial(_run, json.loads(message), descriptors)))
        for each in descriptors:
            os.close(each)
        os.waitpid(between, 0)
        control.send(b"forked")


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
