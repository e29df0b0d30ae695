"""Tools that view and edit files."""

from __future__ import annotations

import errno
import os
import posixpath
import re
from typing import ClassVar

from ..authoring.environment import Toolset
from ..authoring.results import ToolOutput
from ..authoring.sandbox.model import FileInfo
from ..authoring.tools import tool
from .shell import is_unicode

__all__ = ["Files"]

_LARGEST_FILE = 10 << 20
_MOST_NAMES = 1_000
_LONGEST_PATH, _LONGEST_NAME = 4_095, 255  # bytes, as Linux has them


class Files(Toolset):
    """The tools ``view_file``, ``write_file``, ``replace_in_file`` and ``insert_in_file``.

    Paths may be relative to ``folder``. What the model does wrong is an answer to it, not an error.
    """

    folder: ClassVar[str] = "/"
    max_characters: ClassVar[int] = 40_000
    """Characters of a file that a model gets at once."""
    max_line_characters: ClassVar[int] = 2_000
    """Characters of a line that a model gets."""

    @tool
    async def view_file(self, path: str, first_line: int = 1, last_line: int | None = None) -> ToolOutput:
        """Show a text file with line numbers, or the names in a folder.

        Args:
            path: The file or folder.
            first_line: The first line to show; lines are counted from 1.
            last_line: The last line to show; the end of the file without it.
        """
        try:
            path = self._path(path)
            info = await self.sandbox.stat(path)
            if info.kind == "folder":
                return _said(_names(await self.sandbox.list(path)))
            lines = _lines(await self._text(path))
        except OSError as exc:
            return _failed(path, exc)
        if not 1 <= first_line <= max(len(lines), 1) or (last_line is not None and last_line < first_line):
            return _said(f"{path} has {len(lines)} lines: first_line and last_line must be among them.")
        part = lines[first_line - 1 : last_line]
        text = "\n".join(f"{number:6}\t{self._shown(line)}" for number, line in enumerate(part, first_line))
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
        try:
            path = self._path(path)
            await self._write(path, text)
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
        try:
            path = self._path(path)
            text = await self._text(path)
            if _is_crlf(text) or ("\r\n" in text and old not in text):
                old, new = _crlf(old), _crlf(new)
            found = text.count(old) if old else 0
            if found != 1:
                return _said(f"The text occurs {found} times in {path}: nothing was replaced.")
            await self._write(path, text.replace(old, new))
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
        try:
            path = self._path(path)
            lines = _lines(await self._text(path))
            if not 0 <= after_line <= len(lines):
                return _said(f"{path} has {len(lines)} lines: nothing was inserted.")
            await self._write(path, _inserted(lines, after_line, text))
        except OSError as exc:
            return _failed(path, exc)
        return _said(f"Inserted the lines into {path}.")

    def _path(self, path: str) -> str:
        """An absolute path. Raises OSError for what can be none."""
        if "\0" in path or not is_unicode(path):
            raise OSError(errno.EINVAL, "a path cannot hold a NUL or half of a surrogate pair")
        path = posixpath.normpath(posixpath.join("/", self.folder, path))
        raw = path.encode()
        if len(raw) > _LONGEST_PATH or any(len(name) > _LONGEST_NAME for name in raw.split(b"/")):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return path

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

    async def _write(self, path: str, text: str) -> None:
        if not is_unicode(text):
            raise OSError(errno.EILSEQ, "a text cannot hold half of a surrogate pair", path)
        await self.sandbox.write(path, text)

    def _shown(self, line: str) -> str:
        line = line.removesuffix("\n").removesuffix("\r")
        left = len(line) - self.max_line_characters
        if left <= 0:
            return line
        return f"{line[: self.max_line_characters]}[... {left} characters of this line are left out ...]"


def _said(text: str) -> ToolOutput:
    return ToolOutput(blocks=[text])


def _failed(path: str, error: OSError) -> ToolOutput:
    shown = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_NAME]}..."
    return _said(f"{shown}: {error.strerror or error}".encode("utf-8", "replace").decode())


def _lines(text: str) -> list[str]:
    """Lines with their ends, which are LF or CRLF and nothing else: as other programs count them."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _is_crlf(text: str) -> bool:
    return 0 < text.count("\n") == text.count("\r\n")


def _crlf(text: str) -> str:
    return re.sub(r"(?<!\r)\n", "\r\n", text)


def _inserted(lines: list[str], after_line: int, text: str) -> str:
    """All lines, with ``text`` among them: its lines end like the one beside them, and the file as before."""
    beside = [line for line in lines[max(after_line - 1, 0) :: -1] if line.endswith("\n")][:1]
    text = text if text.endswith("\n") else f"{text}\n"
    if beside and beside[0].endswith("\r\n"):
        text = _crlf(text)
    if after_line == len(lines) and lines and not lines[-1].endswith("\n"):
        end = "\r\n" if text.endswith("\r\n") else "\n"
        text = end + text.removesuffix(end)
    return "".join([*lines[:after_line], text, *lines[after_line:]])


def _names(found: list[FileInfo]) -> str:
    marks = {"folder": "/", "link": "@", "file": "", "other": "|"}
    names = [f"{each.name}{marks[each.kind]}" for each in found[:_MOST_NAMES]]
    if len(found) > _MOST_NAMES:
        names.append(f"[... {len(found) - _MOST_NAMES} more ...]")
    text = "\n".join(names) or "[the folder is empty]"
    return text.encode("utf-8", "replace").decode()
