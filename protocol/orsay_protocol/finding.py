"""Search for any of many texts in another one: whole, in parts, or cut by dots.

``Patterns`` shows quickly that nothing is there, as nearly always, however many texts are looked for; else
``Index`` looks at single places.
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
"""Shorter texts stand in too many words: they are not looked for."""
PART = 16
"""Number of characters of a longer text that are found without the rest of it."""
LONG = 256
"""The same for longer texts, where shorter parts would be too many to look for."""

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
    """The text with U+FFFD for each half of a surrogate pair, which ``Patterns`` do not take; of the same
    length.
    """
    return text if text.isascii() or _TEXT.isinstance_python(text) else _HALVES.sub("\ufffd", text)


def windows(text: str, margin: int, size: int = _WINDOW) -> Iterator[tuple[int, str]]:
    """Pieces of the text and where they begin; what is no longer than the margin is whole in one of them."""
    if len(text) <= size:
        yield 0, text
        return
    for at in range(0, len(text), size):
        start = max(0, at - margin)
        yield start, text[start : at + size + margin]


def literal(text: str) -> str:
    """A pattern of that text."""
    return _ODD.sub(lambda match: f"\\x{{{ord(match[0]):x}}}", text)


class Patterns:
    """Search for several regular expressions in one pass of Rust's regex, which pydantic includes: far faster
    than one ``in`` after the other. False when there are none.
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
        """``text`` is well spelled."""
        if self._validators is None:
            schemas = [core_schema.str_schema(pattern="|".join(group)) for group in self._groups]
            self._validators = [SchemaValidator(schema) for schema in schemas]
        return any(validator.isinstance_python(text) for validator in self._validators)


class Index:
    """Finds ``texts``, and long enough parts of them; ``whole`` are found only if all of them is there."""

    __slots__ = ("_edges", "_heads", "_needles", "_places", "_tails", "size")

    def __init__(self, texts: Iterable[str], whole: Iterable[str] = ()) -> None:
        texts = list(texts)
        places = [_Place(text, 0, text[:_NEEDLE], len(text)) for text in whole]
        most = min(max(_PARTS // max(len(texts), 1), _LEAST_PARTS), _MOST_PARTS)
        for text in texts:
            places += _places(text, most)
        self.size = len(places)
        """Number of parts that are looked for."""
        self._places = _by(lambda place: place.block[:SHORTEST], places)
        self._needles = Patterns(literal(place.block[:_NEEDLE]) for place in places)
        self._heads = _by(lambda text: text[:SHORTEST], texts)
        self._tails = _by(lambda text: text[-SHORTEST:], texts)
        self._edges = Patterns(map(literal, [*self._heads, *self._tails]))

    def find(self, text: str) -> list[Span]:
        """Spans of the texts in ``text``, which may overlap. ``text`` is well spelled."""
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
        """The beginning of a text before, and its end behind dots that mark a cut."""
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
        """Positions at which one of these ends of texts begins, in order."""
        found: list[int] = []
        for first in range(0, len(text), _WINDOW):
            last = first + _WINDOW
            if self._edges.stand_in(text[first : last + SHORTEST]):
                found += [at for at in range(first, last) if text[at : at + SHORTEST] in ends]
        return found


class _Place:
    """A block of a text. ``least``: where it stands with so many characters of the text, they are found."""

    __slots__ = ("at", "block", "least", "text")

    def __init__(self, text: str, at: int, block: str, least: int) -> None:
        self.text = text
        self.at = at
        self.block = block
        self.least = least

    def around(self, text: str, at: int, last: int) -> Span | None:
        """The match around ``at``. ``last`` is the end of the previous one, which is not searched again.

        A line break may stand anywhere in it, as in long base64.
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
    """Blocks of a text, about ``most``; each part that is to be found holds one of them whole."""
    if len(text) <= PART:
        yield _Place(text, 0, text, len(text))
        return
    size = max(_NEEDLE if len(text) <= LONG else 2 * PART, len(text) // most)
    blocks: dict[str, _Place] = {}
    for at in range(0, len(text) - size + 1, size):
        blocks.setdefault(text[at : at + size], _Place(text, at, text[at : at + size], 2 * size))
    yield from blocks.values()
    if size > _NEEDLE:  # its ends are what remains of a text that was cut
        yield _Place(text, 0, text[:PART], PART)
        yield _Place(text, len(text) - PART, text[-PART:], PART)


def _between(places: list[int], first: int, last: int) -> list[int]:
    return places[bisect_left(places, first) : bisect_right(places, last)]


def _by(key: Callable[[_T], str], items: Iterable[_T]) -> dict[str, list[_T]]:
    found: dict[str, list[_T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
