"""Files that a grader gets of a policy's sandbox, within bounds, whatever the policy has made of them."""

from __future__ import annotations

import asyncio
import errno
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .model import Driver, FileInfo

__all__ = ["Artifacts", "collected", "in_the_way", "write_all"]

_LARGEST = 256 << 20
_MOST = 20_000
_TOLD = 100
_AT_ONCE = 8
_IS_NONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of what is missing, or became a link meanwhile."""


@dataclass
class Artifacts:
    """Contents and modes of plain files by path, and what was left out."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """A hundred paths at most, with U+FFFD for what is no UTF-8."""

    def leave_out(self, paths: Iterable[str]) -> None:
        """Have them no longer."""
        for path in paths:
            self.files.pop(path, None)
            if len(self.left_out) < _TOLD:
                self.left_out.append(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


async def collected(driver: Driver, paths: Sequence[str], most_bytes: int | None = None) -> Artifacts:
    """Plain files: those named, and those below named folders, in order.

    At most 20,000 files and folders are looked at, and files are taken while they fit into 256 MiB, or
    ``most_bytes`` if that is less. Raises SandboxGone and SandboxError, and nothing for what is in the
    sandbox; ValueError for a path that is not absolute.
    """
    found = Artifacts()
    left = _LARGEST if most_bytes is None else min(_LARGEST, most_bytes)
    for path in paths:
        if not path.startswith("/"):
            raise ValueError(f"{path!r} must be an absolute path")
    waiting: list[tuple[str, FileInfo | None]] = [(_normal(path), None) for path in reversed(paths)]
    for _ in range(_MOST):
        if not waiting:
            break
        path, info = waiting.pop()
        try:
            info = info or await driver.stat(path)
            if info.kind == "folder":
                below = [(posixpath.join(path, each.name), each) for each in await driver.list(path)]
                waiting += reversed(below[: _MOST + _TOLD])
            if info.kind != "file":
                continue
            if info.size > left:
                found.leave_out([path])
                continue
            content = await driver.read(path, length=left + 1)
            if len(content) > left:  # it grew meanwhile, and so can others
                left = 0
                found.leave_out([path])
                continue
            left -= len(content)
            found.files[path] = content, info.mode & 0o777
        except OSError as exc:
            if exc.errno == errno.EFBIG and info is not None and info.kind == "file":
                left = 0
            if exc.errno not in _IS_NONE:
                found.leave_out([path])
    found.leave_out(path for path, _ in reversed(waiting[-_TOLD:]))
    return found


def in_the_way(artifacts: Iterable[str], files: Iterable[str]) -> list[str]:
    """Artifacts where the grader has a file, or needs a folder."""
    own = {_normal(path) for path in files}
    folders = {above for path in own for above in _above(path)}
    return [path for path in artifacts if path in own or path in folders or not own.isdisjoint(_above(path))]


async def write_all(driver: Driver, files: Mapping[str, tuple[bytes, int]]) -> list[str]:
    """Write files, several at once; those that cannot be written."""
    room = asyncio.Semaphore(_AT_ONCE)
    failed: list[str] = []

    async def write(path: str, content: bytes, mode: int) -> None:
        async with room:
            try:
                await driver.write(path, content, mode=mode)
            except OSError:
                failed.append(path)

    try:
        async with asyncio.TaskGroup() as group:
            for path, (content, mode) in files.items():
                group.create_task(write(path, content, mode))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return sorted(failed)


def _normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def _above(path: str) -> list[str]:
    """The folders above a path."""
    parts = path.split("/")
    return ["/".join(parts[:count]) or "/" for count in range(1, len(parts))]
