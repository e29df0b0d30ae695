"""Processes forked from a *template*, a single-threaded process that has done the imports. Linux only.

A process is the template's grandchild, whose parent ends at once. Who asks for it is the subreaper for that
moment, and so becomes its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["fork_for", "fork_from"]

_MESSAGE_BYTES = 1 << 20
_MOST_DESCRIPTORS = 253  # that Linux sends in one message
_PR_SET_CHILD_SUBREAPER = 36


def fork_from(template: socket.socket, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
    """Process id of a new child of this process. Raises RuntimeError if the template has ended."""
    template.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
    _adopt_orphans(True)
    try:
        socket.send_fds(template, [json.dumps(request).encode()], descriptors)
        pid, forked = template.recv(64), template.recv(64)
    finally:
        _adopt_orphans(False)
    if not forked:
        raise RuntimeError("the template of processes has ended")
    return int(pid)


def fork_for(control: socket.socket, run: Callable[[dict[str, Any], Sequence[int]], object]) -> None:
    """In a template: fork for each request until nobody can ask any more. Never returns; nor must ``run``."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, _MOST_DESCRIPTORS)
        if not message:
            os._exit(0)
        between = os.fork()
        if between == 0:
            between = os.getpid()
            forked = os.fork()
            if forked:
                control.send(str(forked).encode())
                os._exit(0)
            control.close()
            while os.getppid() == between:
                time.sleep(0.0005)
            run(json.loads(message), descriptors)
        for each in descriptors:
            os.close(each)
        os.waitpid(between, 0)
        control.send(b"forked")


def _adopt_orphans(adopt: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)
