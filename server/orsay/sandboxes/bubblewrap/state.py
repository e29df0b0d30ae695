"""The state folder of a keeper: changes of its sandboxes, under a lock that the system gives up with it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

from .cgroups import remove_groups

__all__ = ["REMOVE", "State"]

REMOVE = ("rm", "-rf", "--one-file-system", "--")

_LOCK, _GROUPS = ".lock", ".groups"


class State:
    """A folder of its own below ``top``, which is of this user alone. Raises OSError."""

    def __init__(self, top: Path) -> None:
        top.mkdir(mode=0o700, exist_ok=True)
        found = top.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise OSError(f"{top} is not a folder of this user alone")
        self._top = top
        while True:
            self.word = secrets.token_hex(8)
            self._lock = os.open(self._of(_LOCK), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if os.fstat(self._lock).st_nlink:  # a sweep of another keeper may have found it before
                break
            os.close(self._lock)
        self.folder = top / self.word
        self.folder.mkdir(mode=0o700)

    def _of(self, suffix: str) -> Path:
        return self._top / f"{self.word}{suffix}"

    def note_groups(self, groups: Iterable[Path]) -> None:
        """Remember the control groups, for the sweep of another keeper."""
        self._of(_GROUPS).write_text(json.dumps([str(each) for each in groups]))

    def sweep(self) -> int:
        """Remove what keepers left that were killed; their number."""
        count = 0
        for lock in self._top.glob(f"*{_LOCK}"):
            word = lock.name.removesuffix(_LOCK)
            if word != self.word:
                with contextlib.suppress(OSError):  # it lives, or another sweep was quicker
                    held = os.open(lock, os.O_RDWR)
                    try:
                        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        _remove(self._top, word)
                        count += 1
                    finally:
                        os.close(held)
        return count

    def close(self) -> None:
        """Remove it, once nothing uses it."""
        _remove(self._top, self.word)
        os.close(self._lock)


def _remove(top: Path, word: str) -> None:
    groups = top / f"{word}{_GROUPS}"
    with contextlib.suppress(OSError, ValueError):
        remove_groups([Path(each) for each in json.loads(groups.read_text())])
    subprocess.run([*REMOVE, str(top / word)], check=False, capture_output=True)
    groups.unlink(missing_ok=True)
    (top / f"{word}{_LOCK}").unlink(missing_ok=True)
