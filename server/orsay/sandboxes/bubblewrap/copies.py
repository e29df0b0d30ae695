"""Copies of folders of changes: with owners, rights, times, links, holes, and what overlayfs notes of them.

No name is followed that a process could meanwhile turn into a link.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["copy_folder"]

_DEEPEST = 400  # each level holds two descriptors
_CLONE = 0x40049409  # FICLONE of ioctl_ficlone(2)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NOT_OURS = frozenset({"security.selinux"})  # the system's own to give


def copy_folder(source: Path, target: Path) -> None:
    """Make ``target`` a copy of a folder. Raises OSError."""
    os.mkdir(target, 0o700)
    ours, its = os.open(source, _FOLDER), os.open(target, _FOLDER)
    try:
        _Copy(its).fill(ours, its, "", 0)
    finally:
        os.close(ours)
        os.close(its)


class _Copy:
    def __init__(self, top: int) -> None:
        self._top = top
        self._linked: dict[tuple[int, int], str] = {}
        """Paths in the copy of files that have several names."""

    def fill(self, source: int, target: int, path: str, depth: int) -> None:
        """Copy what is in a folder, and then what is said of it."""
        if depth > _DEEPEST:
            raise OSError(errno.ENAMETOOLONG, f"folders are nested deeper than {_DEEPEST}")
        with os.scandir(source) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            self._entry(source, target, name, f"{path}{name}", depth)
        _describe(source, target)

    def _entry(self, source: int, target: int, name: str, path: str, depth: int) -> None:
        found = os.stat(name, dir_fd=source, follow_symlinks=False)
        several = not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1
        if several and (found.st_dev, found.st_ino) in self._linked:
            known = self._linked[found.st_dev, found.st_ino]
            os.link(known, name, src_dir_fd=self._top, dst_dir_fd=target, follow_symlinks=False)
            return
        if several:
            self._linked[found.st_dev, found.st_ino] = path
        if stat.S_ISDIR(found.st_mode):
            os.mkdir(name, 0o700, dir_fd=target)
            with _opened(name, _FOLDER, source) as ours, _opened(name, _FOLDER, target) as its:
                self.fill(ours, its, f"{path}/", depth + 1)
        elif stat.S_ISREG(found.st_mode):
            created = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            read = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            with _opened(name, read, source) as ours, _opened(name, created, target) as its:
                _copy_content(ours, its)
                _describe(ours, its)
        else:
            if stat.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            else:  # whiteouts of overlayfs, pipes, sockets
                os.mknod(name, found.st_mode, found.st_rdev, dir_fd=target)
            os.chown(name, found.st_uid, found.st_gid, dir_fd=target, follow_symlinks=False)
            if not stat.S_ISLNK(found.st_mode):
                os.chmod(name, stat.S_IMODE(found.st_mode), dir_fd=target)
            times = (found.st_atime_ns, found.st_mtime_ns)
            os.utime(name, ns=times, dir_fd=target, follow_symlinks=False)


@contextlib.contextmanager
def _opened(name: str, flags: int, folder: int) -> Iterator[int]:
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _copy_content(source: int, target: int) -> None:
    with contextlib.suppress(OSError):  # where the file system cannot share what is equal
        fcntl.ioctl(target, _CLONE, source)
        return
    size = os.fstat(source).st_size
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno != errno.ENXIO:  # a hole up to the end
                raise
            break
        end = os.lseek(source, at, os.SEEK_HOLE)
        os.lseek(target, at, os.SEEK_SET)
        while at < end and (count := os.sendfile(target, source, at, end - at)):
            at += count
        if at < end:
            break  # it became shorter
    os.ftruncate(target, size)


def _describe(source: int, target: int) -> None:
    """Give it the owner, the rights, the attributes and the times of another."""
    found = os.fstat(source)
    os.chown(target, found.st_uid, found.st_gid)
    os.chmod(target, stat.S_IMODE(found.st_mode))
    for name in os.listxattr(source):
        if name not in _NOT_OURS:
            os.setxattr(target, name, os.getxattr(source, name))
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
