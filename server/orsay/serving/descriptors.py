"""File descriptor limit of this process, and the share of it for connections."""

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
"""Upper bound, since some programs that tools start iterate over all possible descriptors."""
_OWN_LEAST, _OWN_MOST = 64, 16_384


def raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one: the default of 1,024 is for old programs."""
    if sys.platform == "win32":
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems refuse the limit that they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def descriptor_limit() -> int:
    """Current limit of this process."""
    if sys.platform == "win32":
        return _MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft


def connections_for(limit: int) -> int:
    """Share of ``limit`` for connections; the rest is for journal, workers, containers and sessions.

    The system assigns the lowest free number, so a socket with a higher number means that the rest is in use.
    """
    own = max(_OWN_LEAST, min(_OWN_MOST, limit // 4))
    return max(1, limit - own)


def has_free_descriptor() -> bool:
    """True if another descriptor can be opened now."""
    try:
        os.close(os.dup(2))
    except OSError:
        return False
    return True
