"""Search for texts in escaped form: by JSON, ``repr``, URLs, HTML, SQL and shell, in any order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from .finding import PART, SHORTEST, Index, Patterns, Span, literal, well_spelled, windows
from .spellings import layers, plain_runs

__all__ = ["Escaped"]

_FIRST = "\\%&'\""
_REST = _FIRST + "#;+"
_MOST_STRETCHES = 8
_STRETCH = PART // 2
_TELLING = 4  # characters that are never escaped
_REACH = 8  # characters beside what is escaped
_ESCAPE = 24  # characters of one, in what is commonly written
_MARGIN, _MOST_MARGIN = 1024, 8192
_DOTS = ("...", "…")


class Escaped:
    """Finds escaped texts, by unescaping the surroundings of their characteristic parts.

    ``index`` finds them in the unescaped text.
    """

    __slots__ = ("_ends", "_index", "_margin", "_signs")

    def __init__(self, texts: Collection[str], index: Index) -> None:
        self._index = index
        self._signs = Patterns(sign for text in texts for sign in _signs(text))
        self._ends = Patterns(_sign(end) for text in texts for end in (text[:SHORTEST], text[-SHORTEST:]))
        longest = max(map(len, texts), default=0)
        self._margin = min(max(_MARGIN, _ESCAPE * longest), _MOST_MARGIN)

    def __bool__(self) -> bool:
        return bool(self._signs)

    def find(self, text: str) -> Iterator[Span]:
        """Spans of the texts in ``text``, which has no lone surrogates."""
        for start, piece in windows(text, self._margin, 2 * self._margin) if self._signs else ():
            if self._signs.stand_in(piece) or (_is_cut(piece) and self._ends.stand_in(piece)):
                for layer, place in layers(piece):
                    for first, last in self._index.find(well_spelled(layer)):
                        yield start + place(first), start + place(last)


def _is_cut(text: str) -> bool:
    return any(dots in text for dots in _DOTS)


def _signs(text: str) -> Iterable[str]:
    """Patterns, one of which occurs in every escaped form of the text, or of a long enough part of it."""
    if len(text) > PART:
        step = max(_STRETCH, len(text) // _MOST_STRETCHES)
        stretches = (text[at : at + _STRETCH] for at in range(0, len(text) - _STRETCH + 1, step))
        telling = [each for each in stretches if sum(map(len, plain_runs(each))) >= _TELLING]
        if telling:
            return map(_sign, telling)
    return [_sign(text)]


def _sign(text: str) -> str:
    """Pattern of a part that may be escaped, between never escaped characters, as many as possible."""
    runs = plain_runs(text)
    gaps: list[tuple[str, str, str]] = []
    before, rest = "", text
    for run in [*runs, ""]:
        odd, _, rest = rest.partition(run) if run else (rest, "", "")
        if odd:
            gaps.append((before[-_REACH:], odd, run[:_REACH]))
        before = run
    if not gaps:
        return literal(text)
    left, odd, right = max(gaps, key=lambda gap: len(gap[0]) + len(gap[2]))
    first, more = _class(_FIRST + odd[0]), _class(_REST + odd, "a-zA-Z0-9")
    return f"{literal(left)}{first}{more}*{literal(right)}"


def _class(characters: str, more: str = "") -> str:
    return f"[{literal(''.join(sorted(set(characters))))}{more}]"
