"""Line numbers of the keys of a TOML document; ``tomllib`` reads the values and keeps no positions."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeAlias

__all__ = ["Lines"]

_Path: TypeAlias = tuple[str | int, ...]
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}\n#]*")


class Lines:
    """Line numbers of a document that ``tomllib`` has read."""

    def __init__(self, text: str) -> None:
        self._lines = _Scanner(text).found

    def of(self, path: Sequence[str | int]) -> int:
        """The line, from 1, of a key or of an element of a list; else that of the nearest one around it."""
        for length in range(len(path), 0, -1):
            line = self._lines.get(tuple(path[:length]))
            if line is not None:
                return line
        return 1


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._counted = self._line = 0
        self._tables: Counter[_Path] = Counter()
        self._found: dict[_Path, int] = {}
        self._scan()

    @property
    def found(self) -> Mapping[_Path, int]:
        return self._found

    def _scan(self) -> None:
        inside: _Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                inside = self._header()
            else:
                self._pair(inside)
            self._skip(_BLANK)

    def _header(self) -> _Path:
        many = self._text.startswith("[[", self._at)
        self._at += 1 + many
        path = self._key(())
        if many:
            self._tables[path] += 1
            path = (*path, self._tables[path] - 1)
            self._note(path)
        self._at += 1 + many
        return path

    def _pair(self, inside: _Path) -> None:
        path = self._key(inside)
        self._at += 1  # the equals sign
        self._skip(_SPACE)
        self._value(path)

    def _key(self, inside: _Path) -> _Path:
        """A dotted key; after it ``_at`` stands at what ends it."""
        path = inside
        while True:
            self._skip(_SPACE)
            match = _STRING.match(self._text, self._at) or _BARE_KEY.match(self._text, self._at)
            assert match is not None, "tomllib takes no other key"
            path = (*self._current(path), next(iter(tomllib.loads(f"{match.group()} = 0"))))
            self._note(path)
            self._at = match.end()
            self._skip(_SPACE)
            if self._text[self._at] != ".":
                return path
            self._at += 1

    def _current(self, path: _Path) -> _Path:
        """Path of a header; below an array of tables it refers to the last table."""
        return (*path, self._tables[path] - 1) if path in self._tables else path

    def _value(self, path: _Path) -> None:
        opening = self._text[self._at]
        if opening == "[":
            self._elements(path)
        elif opening == "{":
            self._inline(path)
        else:
            match = _STRING.match(self._text, self._at) or _BARE_VALUE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()

    def _elements(self, path: _Path) -> None:
        self._at += 1
        number = 0
        while True:
            self._skip(_BLANK)
            if self._text[self._at] == "]":
                break
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._note((*path, number))
            self._value((*path, number))
            number += 1
        self._at += 1

    def _inline(self, path: _Path) -> None:
        self._at += 1
        while True:
            self._skip(_BLANK)
            if self._text[self._at] == "}":
                break
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._pair(path)
        self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _note(self, path: _Path) -> None:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        self._found.setdefault(path, self._line + 1)
