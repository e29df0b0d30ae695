"""Tools that view and edit files."""

from __future__ import annotations

import errno
import os
import posixpath
from typing import ClassVar

from ..authoring.environment import Toolset
from ..authoring.results import ToolOutput
from ..authoring.sandbox.model import FileInfo
from ..authoring.tools import tool

__all__ = ["Files"]

_LARGEST_FILE = 10 << 20
_MOST_NAMES = 1_000


class Files(Toolset):
    """The tools ``view_file``, ``write_file``, ``replace_in_file`` and ``insert_in_file``.

    Paths may be relative to ``folder``. What the model does wrong is an answer to it, not an error.
    """

    folder: ClassVar[str] = "/"
    max_characters: ClassVar[int] = 40_000
    """Characters of a file that a model gets at once."""

    @tool
    async def view_file(self, path: str, first_line: int = 1, last_line: int | None = None) -> ToolOutput:
        """Show a text file with line numbers, or the names in a folder.

        Args:
            path: The file or folder.
            first_line: The first line to show; lines are counted from 1.
            last_line: The last line to show; the end of the file without it.
        """
        path = self._path(path)
        try:
            info = await self.sandbox.stat(path)
            if info.kind == "folder":
                return _said(_names(await self.sandbox.list(path)))
            lines = (await self._text(path)).splitlines()
        except OSError as exc:
            return _failed(path, exc)
        if not 1 <= first_line <= max(len(lines), 1) or (last_line is not None and last_line < first_line):
            return _said(f"{path} has {len(lines)} lines: first_line and last_line must be among them.")
        part = lines[first_line - 1 : last_line]
        text = "\n".join(f"{number:6}\t{line}" for number, line in enumerate(part, first_line))
        if len(text) > self.max_characters:
            text = text[: self.max_characters] + "\n[... the rest is left out: ask for fewer lines ...]"
        return _said(text or "[the file is empty]")

    @tool
    async def write_file(self, path: str, text: str) -> ToolOutput:
        """Write a file, in place of what it held before; folders above it are made.

        Args:
            path: The file.
            text: All of its new text.
        """
        path = self._path(path)
        try:
            await self.sandbox.write(path, text)
        except OSError as exc:
            return _failed(path, exc)
        return _said(f"Wrote {path}.")

    @tool
    async def replace_in_file(self, path: str, old: str, new: str) -> ToolOutput:
        """Replace a text that occurs exactly once in a file.

        Args:
            path: The file.
            old: The text, with all its white space; add lines around it until it occurs once.
            new: What comes in its place.
        """
        path = self._path(path)
        try:
            text = await self._text(path)
            found = text.count(old) if old else 0
            if found != 1:
                return _said(f"The text occurs {found} times in {path}: nothing was replaced.")
            await self.sandbox.write(path, text.replace(old, new))
        except OSError as exc:
            return _failed(path, exc)
        return _said(f"Replaced the text in {path}.")

    @tool
    async def insert_in_file(self, path: str, after_line: int, text: str) -> ToolOutput:
        """Insert lines into a file.

        Args:
            path: The file.
            after_line: Number of the line after which they come; 0 for the beginning.
            text: The lines.
        """
        path = self._path(path)
        try:
            lines = (await self._text(path)).splitlines(keepends=True)
            if not 0 <= after_line <= len(lines):
                return _said(f"{path} has {len(lines)} lines: nothing was inserted.")
            if after_line and not lines[after_line - 1].endswith("\n"):
                lines[after_line - 1] += "\n"
            lines.insert(after_line, text if text.endswith("\n") else f"{text}\n")
            await self.sandbox.write(path, "".join(lines))
        except OSError as exc:
            return _failed(path, exc)
        return _said(f"Inserted the lines into {path}.")

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join("/", self.folder, path))

    async def _text(self, path: str) -> str:
        info: FileInfo = await self.sandbox.stat(path)
        if info.kind == "link":
            raise OSError(errno.ELOOP, "it is a link", path)
        if info.kind != "file":
            raise OSError(errno.EINVAL, "it is no file", path)
        if info.size > _LARGEST_FILE:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        content: bytes = await self.sandbox.read(path)
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise OSError(errno.EILSEQ, "it is no text in UTF-8", path) from None


def _said(text: str) -> ToolOutput:
    return ToolOutput(blocks=[text])


def _failed(path: str, error: OSError) -> ToolOutput:
    return _said(f"{path}: {error.strerror or error}")


def _names(found: list[FileInfo]) -> str:
    marks = {"folder": "/", "link": "@", "file": "", "other": "|"}
    names = [f"{each.name}{marks[each.kind]}" for each in found[:_MOST_NAMES]]
    if len(found) > _MOST_NAMES:
        names.append(f"[... {len(found) - _MOST_NAMES} more ...]")
    text = "\n".join(names) or "[the folder is empty]"
    return text.encode("utf-8", "replace").decode()
