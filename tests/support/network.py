"""A network of a file's own, where Linux permits that: containers that come and go are not seen in it.

Chromium ends its connections, local ones too, when an interface appears or vanishes: ERR_NETWORK_CHANGED.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

__all__ = ["current_network", "enter_network", "has_own", "own_network"]

_CLONE_NEWNET = 0x4000_0000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_HERE = "/proc/thread-self/ns/net"


@contextmanager
def own_network() -> Iterator[None]:
    """Move the calling thread, and what it starts, to a network with a loopback interface and nothing else.

    Sockets that are open stay where they are. Where it is not permitted, nothing is changed.
    """
    if not has_own():
        yield
        return
    thread = threading.get_native_id()
    with current_network() as (before,):
        _enter()
        try:
            yield
        finally:
            assert threading.get_native_id() == thread
            _checked(_libc().setns(before, _CLONE_NEWNET))


@contextmanager
def current_network() -> Iterator[list[int]]:
    """A descriptor of the calling thread's network, for a process to enter; none without networks."""
    if not has_own():
        yield []
        return
    descriptor = os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield [descriptor]
    finally:
        os.close(descriptor)


def enter_network(descriptor: int) -> None:
    """Move the calling thread to a network, and close the descriptor."""
    with contextlib.closing(os.fdopen(descriptor, "rb")):
        if os.fstat(descriptor).st_ino != os.stat(_HERE).st_ino:
            _checked(_libc().setns(descriptor, _CLONE_NEWNET))


@cache
def has_own() -> bool:
    """Whether threads of this process may have networks of their own. One that ends at once tries."""
    tried: list[bool] = []

    def attempt() -> None:
        try:
            _enter()
        except OSError:
            return
        tried.append(True)

    if sys.platform.startswith("linux") and Path(_HERE).exists():
        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
    return bool(tried)


def _enter() -> None:
    _checked(_libc().unshare(_CLONE_NEWNET))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
