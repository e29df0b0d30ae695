"""Forms of a text inside other texts: its escaped and encoded forms, with a map to original positions.

``layers`` removes one level of escapes after another, in any mixture of JSON, ``repr``, URLs, HTML, SQL and
shell; ``encodings`` are forms that unescaping does not find.
"""

from __future__ import annotations

import base64
import html
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TypeAlias

__all__ = ["IndexMap", "encodings", "images", "is_plain", "layers", "numbers_of", "numerals_of", "plain_runs"]

IndexMap: TypeAlias = Callable[[int], int]
"""Map of an index in an unescaped text to the index in the text itself."""

_DEPTH = 5  # JSON in JSON in JSON, of a value that looks escaped by itself
_LAYERS = 8
_BUDGET = 200_000  # characters that are always searched
_IMAGES = 2_000  # the same of a secret
_LEAST_ENCODED = 8  # characters of base64 that do not occur by chance
_LONG_ENCODED = 16  # bytes that are no less in base64
_MOST_DIGITS = 300
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_LETTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = "[0-9A-Fa-f]"


def _utf8(byte: str) -> str:
    """Pattern of one UTF-8 character or byte, each byte written as ``byte`` and two hex digits."""
    more = f"(?:{byte}[89ABab]{_HEX})"
    two = f"{byte}(?:[Cc][2-9A-Fa-f]|[Dd]{_HEX})"
    return f"{byte}[Ff][0-4]{more}{{3}}|{byte}[Ee]{_HEX}{more}{{2}}|{two}{more}|{byte}{_HEX}{{2}}"


_SLASHED = [
    rf"\\u[Dd][89ABab]{_HEX}{{2}}\\u[Dd][C-Fc-f]{_HEX}{{2}}",
    rf"\\u{_HEX}{{4}}",
    rf"\\U{_HEX}{{8}}",
    r"\\[bfnrt]",
    r"\\[^\w\s]",
    r"\\ ",
]
_SLASHED_BYTES = [*_SLASHED, _utf8(r"\\x")]  # repr of bytes
_SLASHED_TEXT = [*_SLASHED, rf"\\x{_HEX}{{2}}"]  # repr of a text
_PERCENT = [_utf8("%")]
_ENTITIES = [r"&#(?:\d{1,7}|[xX][0-9A-Fa-f]{1,6});", r"&(?:amp|lt|gt|quot|apos);"]
_QUOTES = ["'\"'\"'", "''", '""']  # for the shell, SQL, CSV


_KINDS = [
    re.compile("|".join(kind)) for kind in (_SLASHED_BYTES, _SLASHED_TEXT, _PERCENT, _ENTITIES, _QUOTES)
]


def is_plain(text: str) -> bool:
    """True if no serializer has a reason to escape any of its characters."""
    return _PLAIN.fullmatch(text) is not None


def plain_runs(text: str) -> list[str]:
    """The parts that no serializer has a reason to escape."""
    return _PLAIN.findall(text)


def layers(text: str, budget: int = _BUDGET) -> Iterator[tuple[str, IndexMap]]:
    """The text without one level of escapes, then without two, and so on, until none are left.

    One kind of escapes is removed at a time, in every order: escaped text may contain something that looks
    like an escape of another kind. For long texts with many kinds of escapes only the outer levels are
    searched.
    """
    seen, budget = {text}, max(budget, _LAYERS * len(text))
    level: list[tuple[str, IndexMap]] = [(text, lambda at: at)]
    for _ in range(_DEPTH):
        below: list[tuple[str, IndexMap]] = []
        for outer, to_text in level:
            for kind in _KINDS:
                found = _unescaped(outer, kind)
                if found is None or found[0] in seen:
                    continue
                inner, here = found
                seen.add(inner)
                budget -= len(inner)
                below.append((inner, _through(here, to_text)))
                yield below[-1]
                if budget < 0:
                    return
        level = below


def _through(here: IndexMap, outer: IndexMap) -> IndexMap:
    return lambda at: outer(here(at))


def images(text: str) -> list[str]:
    """The text, and its ``layers`` if it looks like an escape itself."""
    return list(dict.fromkeys([text, *(layer for layer, _ in layers(text, _IMAGES))]))


def _unescaped(text: str, escape: re.Pattern[str]) -> tuple[str, IndexMap] | None:
    """Text without one level of escapes, each replaced by one character; None without any."""
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    at = 0
    for match in escape.finditer(text):
        start, at, before = match.start(), match.end(), at
        parts += text[before:start], _meant(match.group())
        spans.append((start, at - start - 1))
    if not spans:
        return None
    parts.append(text[at:])
    gone = [0, *accumulate(more for _, more in spans)]
    stands = [start - lost for (start, _), lost in zip(spans, gone, strict=False)]
    return "".join(parts), lambda index: index + gone[bisect_left(stands, index)]


def _meant(escape: str) -> str:
    first, kind = escape[0], escape[1]
    if first == "&":
        return html.unescape(escape)[:1]
    if first in "'\"":
        return first
    if first == "%":
        return _decoded(bytes.fromhex(escape.replace("%", "")))
    if kind == "x":
        return _decoded(bytes.fromhex(escape.replace("\\x", "")))
    if kind == "u":
        data = bytes.fromhex(escape.replace("\\u", ""))
        return data.decode("utf-16-be", "surrogatepass")
    if kind == "U":
        number = int(escape[2:], 16)
        return chr(number) if number < 0x110000 else "\ufffd"
    return _LETTERS.get(kind, kind)


def _decoded(data: bytes) -> str:
    """One character: of UTF-8, or the byte itself."""
    try:
        found = data.decode()
    except UnicodeDecodeError:
        found = data.decode("latin-1")
    return found if len(found) == 1 else "\ufffd"


def encodings(value: str) -> set[str]:
    """Base64 and hexadecimal digits of the value, also inside of those of a longer text."""
    found = set()
    for spelled in {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}:
        data = spelled.encode(errors="surrogatepass")
        found |= {data.hex(), data.hex().upper()}
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(data).decode().rstrip("="))
            for before in range(len(data) > _LONG_ENCODED, 3):  # else found as a part of the whole
                whole = encode(b"\0" * before + data).decode()
                inner = whole[(0, 2, 3)[before] : (before + len(data)) * 8 // 6]
                if len(inner) >= _LEAST_ENCODED:
                    found.add(inner)
    return found


def numbers_of(value: str) -> set[int | float]:
    """The number that the value spells, and its negative, if it has at least four digits."""
    text = value.strip()
    if len(text) > _MOST_DIGITS or not text.isascii() or not _NUMBER.fullmatch(text):
        return set()
    number = int(text) if text.lstrip("+-").isdigit() else _number(float(text))
    return {number, -number} if sum(map(str.isdigit, repr(number))) >= 4 else set()


def _number(read: float) -> int | float:
    return int(read) if read.is_integer() else read


def numerals_of(value: str) -> set[str]:
    """Spellings of that number."""
    found = set()
    for number in numbers_of(value):
        if number < 0:
            continue  # its digits are those of the other one
        if isinstance(number, int):
            found |= {str(number), f"{number:,}", f"{number:_}"}
            if number < 1e300:
                found.add(repr(float(number)).removesuffix(".0"))
        else:
            found.add(repr(number))
    return found
