"""Who becomes the parent of a process whose parent has ended. Linux only."""

from __future__ import annotations

import ctypes

__all__ = ["adopt_orphans"]

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans(adopt: bool) -> None:
    """Whether processes below this one become its children when their parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)
