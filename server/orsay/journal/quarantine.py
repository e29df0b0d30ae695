"""Moves a damaged SQLite file out of the way, with the files that belong to it."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["move_aside"]


def move_aside(path: Path) -> Path:
    """Where the file is now: beside, with ``damaged`` and the time in its name. Raises OSError."""
    target = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    number = 1
    while target.exists():
        number += 1
        target = target.with_name(f"{target.name.partition('~')[0]}~{number}")
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(target.with_name(target.name + suffix))
    path.rename(target)
    return target
