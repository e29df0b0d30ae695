"""Selection of a project's files for an image, with a reason for each file that is left out.

Files with keys or recorded sessions are left out, by their name, by their content, or because settings name
them, under every name that they have: links and hard links too. Only a .dockerignore line that names the
exact file includes it; an allow-list (``*``, ``!my_env``) does not.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..config import DEFAULT_FILE, find_file
from ..config.private import PrivateFile, has_secrets, is_settings, of_document, of_variables
from ..errors import LoadError
from .files import Kept, open_regular
from .ignore import CLUTTER, Patterns, line_for
from .names import of_journal, secret_name
from .recognise import secret_content
from .tree import Entry, Tree, inodes_below, walk

__all__ = ["Judgement", "LeftOut", "judge"]

_SETTINGS_BYTES = 1024 * 1024
_READ_BEFORE = frozenset({"Dockerfile", "README.md"})
"""Files that are processed and written again, even if .dockerignore excludes them."""

_SPECIAL = "is a pipe, a socket or a device"
_FOLDER_LINK = "links to a folder: its files go in under their own names only"
_STRAY_LINK = "links to no file of this folder"
_UNNAMEABLE = "has a name that cannot be sent: rename it to letters that can be shown"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is left out. ``reason`` completes "FILE ..."; ``line`` of .dockerignore includes it."""

    relpath: str
    kind: Literal["private", "link", "special", "name"]
    reason: str
    line: str | None = None


@dataclass(frozen=True)
class Judgement:
    """Result of the selection. ``texts`` may be read even if .dockerignore excludes them from ``files``."""

    files: Mapping[str, Kept]
    left_out: tuple[LeftOut, ...]
    ignored: tuple[str, ...]
    texts: Mapping[str, Kept]


def judge(root: Path, own: Patterns) -> Judgement:
    """Select files below ``root``, a path without links. Raises LoadError for an unreadable folder."""
    clutter = Patterns(CLUTTER)
    tree = walk(root, own, clutter)
    return _Judge(root, own, clutter, tree).judge()


@dataclass(frozen=True, slots=True)
class _Other:
    """A file whose other names are left out too. ``private``: for its secrets, not as a cache."""

    relpath: str
    reason: str
    private: bool


@dataclass
class _Judge:
    root: Path
    own: Patterns
    clutter: Patterns
    tree: Tree
    left_out: list[LeftOut] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    files: dict[str, Kept] = field(default_factory=dict)
    texts: dict[str, Kept] = field(default_factory=dict)
    others: dict[tuple[int, int], _Other] = field(default_factory=dict)
    """Files by device and inode."""

    def judge(self) -> Judgement:
        named = _Named(self.root, self.tree)
        folders = self._secret_folders()
        for relpath, entry in self.tree.entries.items():
            ignored = self._is_ignored(relpath)
            read_before = relpath in _READ_BEFORE
            reason = None
            if not self.own.names(relpath):
                reason = secret_name(relpath) or named.reason(entry) or _below(folders, relpath)
                # A link is judged by its target, except if the target is outside of the walk.
                if not reason and (read_before or (entry.kind == "file" and not ignored)):
                    reason = _content(entry)
            self._remember(entry, reason, ignored=ignored and not read_before)
            if ignored:
                self.ignored.append(relpath)
            found = _left_out(entry, reason)
            if found is None and entry.kept is not None:
                if not ignored:
                    self.files[relpath] = entry.kept
                if read_before:
                    self.texts[relpath] = entry.kept
            elif found is not None and (read_before or not ignored):
                self.left_out.append(found)
        self._leave_out_other_names()
        self.ignored += [f"{relpath}/" for relpath in self.tree.closed if self.own.verdict(relpath)]
        left_out = sorted(self.left_out, key=lambda each: each.relpath)
        return Judgement(self.files, tuple(left_out), tuple(sorted(self.ignored)), self.texts)

    def _is_ignored(self, relpath: str) -> bool:
        verdict = self.own.verdict(relpath)
        return bool(self.clutter.verdict(relpath)) if verdict is None else verdict

    def _secret_folders(self) -> list[tuple[str, str]]:
        """Folders that a link with a secret name points to, with that name."""
        return [
            (entry.target, entry.relpath)
            for entry in self.tree.entries.values()
            if entry.kind == "folder link" and entry.target is not None and secret_name(f"{entry.relpath}/x")
        ]

    def _remember(self, entry: Entry, reason: str | None, *, ignored: bool) -> None:
        """Mark other names of the file as left out; an empty file reveals nothing."""
        if entry.kept is None or not entry.kept.size:
            return
        key = (entry.kept.device, entry.kept.inode)
        if reason:
            self.others[key] = _Other(entry.relpath, reason, private=True)
        elif ignored and entry.kind == "file":
            self.others.setdefault(key, _Other(entry.relpath, "stays out", private=False))

    def _leave_out_other_names(self) -> None:
        entries = self.tree.entries
        if any(entries[relpath].links > 1 for relpath in (*self.files, *self.texts)):
            for key, relpath in inodes_below(self.root, self.tree.closed):
                self.others.setdefault(key, _closed(relpath))
        for relpath in {**self.files, **self.texts}:
            other = self._other(entries[relpath])
            if other is None or (self.own.names(relpath) and secret_name(relpath)):
                continue
            if self.files.pop(relpath, None) or other.private:
                reason = f"is the same file as {other.relpath}, which {other.reason}"
                self.left_out.append(LeftOut(relpath, "private", reason, line_for(other.relpath)))
            if other.private:
                self.texts.pop(relpath, None)

    def _other(self, entry: Entry) -> _Other | None:
        """The other name by which the file is left out."""
        if entry.kept is None or not entry.kept.size:
            return None
        found = self.others.get((entry.kept.device, entry.kept.inode))
        if found is None and entry.target is not None and entry.target not in self.tree.entries:
            return _closed(entry.target)
        return found


def _closed(relpath: str) -> _Other:
    """Entry for a file in a folder that is left out as a whole and was not read."""
    reason = secret_name(relpath)
    return _Other(relpath, reason or "stays out", private=reason is not None)


def _left_out(entry: Entry, reason: str | None) -> LeftOut | None:
    relpath = entry.relpath
    if entry.kind == "special":
        return LeftOut(relpath, "special", _SPECIAL)
    if entry.kept is None:
        return LeftOut(relpath, "link", _FOLDER_LINK if entry.kind == "folder link" else _STRAY_LINK)
    if reason:
        return LeftOut(relpath, "private", reason, line_for(relpath))
    return None if relpath.isprintable() else LeftOut(relpath, "name", _UNNAMEABLE)


class _Named:
    """Private files named by settings: of the project, of the current folder, and of variables."""

    def __init__(self, root: Path, tree: Tree) -> None:
        self._root, self._tree = root, tree
        self._by_relpath: dict[str, str] = {}
        self._by_inode: dict[tuple[int, int], str] = {}
        self._journals: list[tuple[str, re.Pattern[str], str]] = []
        self._settings = list(_settings(root, tree))
        for relpath, document in self._settings:
            if has_secrets(document):
                self._by_relpath[relpath] = "holds keys or a password"
        for private in self._private():
            self._add(private)

    def reason(self, entry: Entry) -> str | None:
        """Reason why the file is left out, as the end of a sentence."""
        if found := self._by_relpath.get(entry.relpath):
            return found
        if entry.kept and (found := self._by_inode.get((entry.kept.device, entry.kept.inode))):
            return found
        above, _, name = entry.relpath.rpartition("/")
        for folder, names, reason in self._journals:
            if folder == above and names.fullmatch(name.casefold()):
                return reason
        return None

    def _private(self) -> Iterator[PrivateFile]:
        for relpath, document in self._settings:
            yield from of_document(self._root / relpath, document)
        here = find_file(None)
        if here is not None:
            yield from of_document(here, _document(here, must=True))
        yield from of_variables()

    def _add(self, private: PrivateFile) -> None:
        try:
            path = private.path.resolve()
            found = path.stat() if path.is_file() else None
        except (OSError, ValueError, RuntimeError):  # invalid path, or a link loop
            return
        for each in {path, private.path}:
            if each.is_relative_to(self._root):
                relpath = each.relative_to(self._root).as_posix()
                self._by_relpath[relpath] = private.reason
                if relpath in self._tree.entries:
                    found = None  # its hard links are found like those of any file
                if private.is_journal:
                    folder, _, name = relpath.rpartition("/")
                    self._journals.append((folder, of_journal(name), private.reason))
        if found is not None:
            self._by_inode[found.st_dev, found.st_ino] = private.reason


def _settings(root: Path, tree: Tree) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Parsed configuration files of the project, also by links to files outside."""
    for relpath, entry in tree.entries.items():
        name = relpath.rpartition("/")[2].casefold()
        if name.endswith(".toml") and name != "pyproject.toml" and entry.kind != "special":
            document = _document(root / relpath, must=name == DEFAULT_FILE and entry.kept is not None)
            if is_settings(name, document):
                yield relpath, document


def _document(path: Path, *, must: bool) -> Mapping[str, Any]:
    """Content of a TOML file; with ``must``, invalid TOML is an error."""
    try:
        with open_regular(path.resolve()) as file:
            return tomllib.loads(file.read(_SETTINGS_BYTES).decode())
    except (OSError, ValueError, RuntimeError) as exc:  # RuntimeError: tables too deep, link loop
        if not must:
            return {}
        raise LoadError(
            f"{path} cannot be read, so the files that it names as secret are unknown: {exc}; fix it, see"
            " 'orsay config --check'"
        ) from exc


def _below(folders: list[tuple[str, str]], relpath: str) -> str | None:
    for folder, name in folders:
        above = "" if folder == "." else f"{folder}/"
        if relpath.startswith(above) and secret_name(f"{name}/{relpath.removeprefix(above)}"):
            return f"lies in a folder that is also called {name}"
    return None


def _content(entry: Entry) -> str | None:
    """Reason why a file is left out for its content."""
    if entry.kept is None:
        return None
    try:
        with entry.kept.open() as file:
            return secret_content(file, entry.relpath, entry.kept.path, entry.kept.size)
    except OSError as exc:
        raise LoadError(
            f"cannot read {entry.kept.path}: {exc.strerror or exc}; let this user read it, or name it in"
            " .dockerignore"
        ) from exc
