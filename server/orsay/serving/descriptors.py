"""Descriptors of this process: how many there may be, and how many of them connections may take."""

from __future__ import annotations

import contextlib
import os
import sys

if sys.platform != "win32":  # which has no such limit
    import resource

__all__ = [
    "MORE_DESCRIPTORS",
    "connections_for",
    "descriptor_limit",
    "has_free_descriptor",
    "raise_descriptor_limit",
]

MORE_DESCRIPTORS = "raise the limit of open files: ulimit -n, LimitNOFILE= of systemd, --ulimit of Docker"
_MOST = 1 << 20
"""Upper bound: some programs that tools start walk through all possible descriptors."""
_OWN_LEAST, _OWN_MOST = 64, 16_384


def raise_descriptor_limit() -> None:
    """Take as many as this process may have: systems give 1,024 at first, for the sake of old programs."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems allow less than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptor_limit() -> int:
    """Current limit of this process."""
    if sys.platform == "win32":
        return _MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft


def connections_for(limit: int) -> int:
    """Share of ``limit`` for connections; the journal, workers, containers and sessions have the rest.

    Numbers are given from the lowest that is free: a socket of a higher number means that the rest is in use.
    """
    own = max(_OWN_LEAST, min(_OWN_MOST, limit // 4))
    return max(1, limit - own)


def has_free_descriptor() -> bool:
    """True where one more can be opened now."""
    try:
        os.close(os.dup(2))
    except OSError:
        return False
    return True
