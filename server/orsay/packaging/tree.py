"""Tree of a project's folder: files, links with their targets, and special files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import LoadError
from .files import Kept
from .ignore import Patterns

__all__ = ["Entry", "Tree", "inodes_below", "walk"]

Kind = Literal["file", "link", "folder link", "stray link", "special"]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the folder. ``relpath`` is its path in the project, with slashes.

    ``link``: to a file of the project; ``folder link``: to a folder of it; ``stray link``: dangling, or out
    of the project; ``special``: a pipe, a socket, a device. ``kept`` is the file, or the target of a link;
    ``target`` is the path that a link resolves to.
    """

    relpath: str
    kind: Kind
    kept: Kept | None = None
    target: str | None = None
    links: int = 1
    """Number of hard links."""


@dataclass(frozen=True)
class Tree:
    """``entries`` by path, in order; ``closed``: folders that are left out as a whole."""

    entries: dict[str, Entry]
    closed: tuple[str, ...]


def walk(root: Path, own: Patterns, clutter: Patterns) -> Tree:
    """Tree below ``root``, a path without links. Raises LoadError for a folder that cannot be read."""
    entries: dict[str, Entry] = {}
    closed: list[str] = []
    waiting = [""]
    try:
        while waiting:
            inside = waiting.pop()
            below = []
            for found in sorted(os.scandir(root / inside), key=lambda each: each.name):
                relpath = f"{inside}/{found.name}" if inside else found.name
                if not found.is_dir(follow_symlinks=False):
                    entries[relpath] = _entry(root, relpath)
                elif _is_closed(root, relpath, own, clutter):
                    closed.append(relpath)
                else:
                    below.append(relpath)
            waiting += reversed(below)
    except OSError as exc:
        raise LoadError(f"cannot read {exc.filename}: {exc.strerror}") from exc
    return Tree(entries, tuple(closed))


def inodes_below(root: Path, folders: tuple[str, ...]) -> Iterator[tuple[tuple[int, int], str]]:
    """Files with several hard links in folders that are left out: device and inode, with one name."""
    for folder in folders:
        for above, _, names in os.walk(root / folder):
            for name in names:
                path = Path(above, name)
                try:
                    found = path.lstat()
                except OSError:
                    continue  # it was removed, so it is no hard link of a present file
                if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                    yield (found.st_dev, found.st_ino), path.relative_to(root).as_posix()


def _entry(root: Path, relpath: str) -> Entry:
    path = root / relpath
    found = path.lstat()
    if stat.S_ISREG(found.st_mode):
        return Entry(relpath, "file", _kept(path, found), links=found.st_nlink)
    if not stat.S_ISLNK(found.st_mode):
        return Entry(relpath, "special")
    try:
        end = Path(os.path.realpath(path, strict=True))
        found = end.lstat()
    except OSError:  # a dangling or circular link
        return Entry(relpath, "stray link")
    if not end.is_relative_to(root):
        return Entry(relpath, "stray link")
    target = end.relative_to(root).as_posix()
    if stat.S_ISDIR(found.st_mode):
        return Entry(relpath, "folder link", target=target)
    if not stat.S_ISREG(found.st_mode):
        return Entry(relpath, "special")
    return Entry(relpath, "link", _kept(end, found), target, found.st_nlink)


def _kept(path: Path, found: os.stat_result) -> Kept:
    return Kept(path, found.st_dev, found.st_ino, found.st_size, bool(found.st_mode & 0o100))


def _is_closed(root: Path, relpath: str, own: Patterns, clutter: Patterns) -> bool:
    if os.path.exists(root / relpath / "pyvenv.cfg"):
        return True
    verdict = own.verdict(relpath)
    if verdict is None:
        return bool(clutter.verdict(relpath)) and not own.names_below(relpath)
    return verdict and not own.may_keep_below(relpath)
