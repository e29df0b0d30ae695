"""Multi-pattern search for texts: whole, in parts, or cut by an ellipsis.

``Patterns`` is a fast filter for the common case without a match; otherwise ``Index`` finds the positions.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

from pydantic_core import SchemaValidator, core_schema

__all__ = ["LONG", "PART", "SHORTEST", "Index", "Patterns", "Span", "literal", "well_spelled", "windows"]

Span: TypeAlias = tuple[int, int]
_T = TypeVar("_T")

SHORTEST = 4
"""Minimum length: shorter texts occur in too many words."""
PART = 16
"""Length of a part of a longer text that is found without the rest."""
LONG = 256
"""The same for long texts, which have too many shorter parts."""

_MOST_PARTS = 128  # of one text
_PARTS = 8192  # of many together, but for ...
_LEAST_PARTS = 8  # ... so many of each
_NEEDLE = PART // 2
_WINDOW = 4096
_PATTERN = 200_000  # characters of one; the regex engine bounds the size of what it makes of them
_DOTS = ("...", "…")
_CUT = re.compile(r"(?:\.{3,}|…)+")
_BREAK = re.compile(r"(?:\r?\n|\\r\\n|\\n)[ \t]*")
_BREAK_BEFORE = re.compile(r"(?:\r?\n|\\r\\n|\\n)[ \t]*\Z")
_INDENT = 40
_ODD = re.compile("[^A-Za-z0-9]")
_HALVES = re.compile("[\ud800-\udfff]")
_TEXT = SchemaValidator(core_schema.str_schema(pattern=""))  # any that UTF-8 can carry


def well_spelled(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, which ``Patterns`` refuse; of the same length."""
    return text if text.isascii() or _TEXT.isinstance_python(text) else _HALVES.sub("\ufffd", text)


def windows(text: str, margin: int, size: int = _WINDOW) -> Iterator[tuple[int, str]]:
    """Overlapping pieces of the text, and their positions; a match within the margin is whole in one."""
    if len(text) <= size:
        yield 0, text
        return
    for at in range(0, len(text), size):
        start = max(0, at - margin)
        yield start, text[start : at + size + margin]


def literal(text: str) -> str:
    """Pattern that matches the text literally."""
    return _ODD.sub(lambda match: f"\\x{{{ord(match[0]):x}}}", text)


class Patterns:
    """Set of regular expressions, searched in one pass of the Rust regex engine that pydantic includes.

    That is far faster than one ``in`` for each text. False if empty.
    """

    __slots__ = ("_groups", "_validators")

    def __init__(self, patterns: Iterable[str]) -> None:
        self._groups: list[list[str]] = []
        self._validators: list[SchemaValidator] | None = None  # made for the first text: some are never asked
        size = _PATTERN
        for pattern in dict.fromkeys(patterns):
            if size >= _PATTERN:
                self._groups.append([])
                size = 0
            self._groups[-1].append(pattern)
            size += len(pattern)

    def __bool__(self) -> bool:
        return bool(self._groups)

    def stand_in(self, text: str) -> bool:
        """True if one of the patterns occurs in ``text``, which has no lone surrogates."""
        if self._validators is None:
            schemas = [core_schema.str_schema(pattern="|".join(group)) for group in self._groups]
            self._validators = [SchemaValidator(schema) for schema in schemas]
        return any(validator.isinstance_python(text) for validator in self._validators)


class Index:
    """Index that finds ``texts`` and long enough parts of them, but ``whole`` texts only as a whole."""

    __slots__ = ("_edges", "_heads", "_needles", "_places", "_tails", "size")

    def __init__(self, texts: Iterable[str], whole: Iterable[str] = ()) -> None:
        texts = list(texts)
        places = [_Place(text, 0, text[:_NEEDLE], len(text)) for text in whole]
        most = min(max(_PARTS // max(len(texts), 1), _LEAST_PARTS), _MOST_PARTS)
        for text in texts:
            places += _places(text, most)
        self.size = len(places)
        """Number of indexed parts."""
        self._places = _by(lambda place: place.block[:SHORTEST], places)
        self._needles = Patterns(literal(place.block[:_NEEDLE]) for place in places)
        self._heads = _by(lambda text: text[:SHORTEST], texts)
        self._tails = _by(lambda text: text[-SHORTEST:], texts)
        self._edges = Patterns(map(literal, [*self._heads, *self._tails]))

    def find(self, text: str) -> list[Span]:
        """Spans of the texts in ``text``, which has no lone surrogates; they may overlap."""
        found: list[Span] = []
        last: dict[str, int] = {}
        for start, piece in windows(text, _NEEDLE):
            if self._needles.stand_in(piece):
                found += self._among(text, start, start + len(piece), last)
        if self._edges and any(dots in text for dots in _DOTS):
            found += self._cut(text)
        return found

    def _among(self, text: str, start: int, end: int, last: dict[str, int]) -> Iterator[Span]:
        places = self._places
        for at in range(start, end):
            for place in places.get(text[at : at + SHORTEST], ()):
                span = place.around(text, at, last.get(place.text, 0))
                if span is not None:
                    last[place.text] = span[1]
                    yield span

    def _cut(self, text: str) -> Iterator[Span]:
        """Spans of a text's beginning before an ellipsis, and of its end after it."""
        heads, tails = self._standing(self._heads, text), self._standing(self._tails, text)
        for cut in _CUT.finditer(text) if heads or tails else ():
            start, end = cut.span()
            for at in _between(heads, start - LONG, start - SHORTEST):
                if any(each.startswith(text[at:start]) for each in self._heads[text[at : at + SHORTEST]]):
                    yield at, start
            for at in _between(tails, end, end + LONG - SHORTEST):
                last = at + SHORTEST
                if any(each.endswith(text[end:last]) for each in self._tails[text[at:last]]):
                    yield end, last

    def _standing(self, ends: dict[str, list[str]], text: str) -> list[int]:
        """Positions where one of these text ends begins, in order."""
        found: list[int] = []
        for first in range(0, len(text), _WINDOW):
            last = first + _WINDOW
            if self._edges.stand_in(text[first : last + SHORTEST]):
                found += [at for at in range(first, last) if text[at : at + SHORTEST] in ends]
        return found


class _Place:
    """A block of a text. ``least``: minimum length of a match around it."""

    __slots__ = ("at", "block", "least", "text")

    def __init__(self, text: str, at: int, block: str, least: int) -> None:
        self.text = text
        self.at = at
        self.block = block
        self.least = least

    def around(self, text: str, at: int, last: int) -> Span | None:
        """The match around ``at``. ``last`` is the end of the previous one, which is not searched again.

        The match may contain line breaks, as in long base64.
        """
        start, end = at, at + len(self.block)
        if end <= last or not text.startswith(self.block, at):
            return None
        known, before, after = self.text, self.at, self.at + len(self.block)
        while before and start > last:
            next = start - 1
            if text[next] != known[before - 1]:
                broken = _BREAK_BEFORE.search(text, max(last, start - _INDENT), start)
                next = broken.start() - 1 if broken else -1
                if next < last or text[next] != known[before - 1]:
                    break
            start, before = next, before - 1
        while after < len(known) and end < len(text):
            next = end
            if text[next] != known[after]:
                broken = _BREAK.match(text, end)
                next = broken.end() if broken else len(text)
                if next >= len(text) or text[next] != known[after]:
                    break
            end, after = next + 1, after + 1
        return (start, end) if after - before >= self.least or 0 < start <= last else None


def _places(text: str, most: int) -> Iterator[_Place]:
    """Blocks of a text, about ``most``; each part to be found contains a whole block."""
    if len(text) <= PART:
        yield _Place(text, 0, text, len(text))
        return
    size = max(_NEEDLE if len(text) <= LONG else 2 * PART, len(text) // most)
    blocks: dict[str, _Place] = {}
    for at in range(0, len(text) - size + 1, size):
        blocks.setdefault(text[at : at + size], _Place(text, at, text[at : at + size], 2 * size))
    yield from blocks.values()
    if size > _NEEDLE:  # the ends remain when a text is cut in the middle
        yield _Place(text, 0, text[:PART], PART)
        yield _Place(text, len(text) - PART, text[-PART:], PART)


def _between(places: list[int], first: int, last: int) -> list[int]:
    return places[bisect_left(places, first) : bisect_right(places, last)]


def _by(key: Callable[[_T], str], items: Iterable[_T]) -> dict[str, list[_T]]:
    found: dict[str, list[_T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
