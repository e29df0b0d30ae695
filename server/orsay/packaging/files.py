"""Files that passed the selection, with a check against replacement before they are read (TOCTOU)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["Kept", "open_regular"]

# A link at its place, or a pipe that would be waited for, is not what was judged.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading, without following a link. Raises OSError, also for other kinds."""
    number = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(f"{path} is no regular file")
        return open(number, "rb")
    except BaseException:
        os.close(number)
        raise


@dataclass(frozen=True, slots=True)
class Kept:
    """A regular file: its path without links, its device and inode."""

    path: Path
    device: int
    inode: int
    size: int
    executable: bool

    def open(self) -> IO[bytes]:
        """Open the file. Raises OSError, also if it was replaced since the selection."""
        file = open_regular(self.path)
        found = os.fstat(file.fileno())
        if (found.st_dev, found.st_ino) != (self.device, self.inode):
            file.close()
            raise OSError(f"{self.path} was replaced while it was looked at; run this again")
        return file
