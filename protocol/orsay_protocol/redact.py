"""Redaction of secrets in texts, for server, client and tools.

A secret is found in every form that serializers produce (``spellings``), where it overlaps another secret,
and in part where a text was cut.
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any
from weakref import ReferenceType, WeakValueDictionary, ref

from .finding import PART, SHORTEST, Span, well_spelled
from .search import Search
from .spellings import numbers_of

__all__ = ["HIDDEN", "NOTHING", "SHORTEST", "Redactor", "latest", "redact", "redactor"]

HIDDEN = "[secret]"
"""Replacement of a secret."""

_MOST_REDACTORS, _MOST_TOGETHER = 256, 131_072  # of ``latest``: redactors, characters of secrets
_MOST_SIZE = 400_000  # of all search structures, in blocks: some hundred MB at most


class Redactor:
    """Redactor of secrets. False without secrets; its repr shows none."""

    __slots__ = ("__weakref__", "_mask", "_numbers", "_search", "_values")

    def __init__(self, secrets: Iterable[str | None], *, mask: str = HIDDEN) -> None:
        given = [well_spelled(secret) for secret in secrets if secret]
        given += [text for text in map(str.strip, given) if len(text) < PART]  # longer: found as parts
        self._values = frozenset(value for value in given if len(value) >= SHORTEST)
        self._numbers = {number for value in self._values for number in numbers_of(value)}
        self._mask = mask
        self._search: Search | None = None

    def __bool__(self) -> bool:
        return bool(self._values)

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._values)} texts>"

    @property
    def longest(self) -> int:
        """Length of the longest secret or of a form derived from it, without escapes."""
        return self._searched().longest

    @property
    def size(self) -> int:
        """Total length of the secrets."""
        return sum(map(len, self._values))

    def _searched(self) -> Search:
        """The search structure: built for the first text, dropped when too many others are in use (LRU)."""
        found = self._search
        if found is None:
            found = self._search = Search(self._values, self._mask)
            _warm.add(self, found.size)
        return found

    def cool(self) -> None:
        """Release the search structure until the next text."""
        self._search = None

    def plain(self, text: str) -> str:
        """Redact a text, which may quote JSON."""
        if not self._values:
            return text
        return _replaced(text, self._spans(text), self._mask)

    def json(self, text: str) -> str:
        """Redact JSON: replaces strings, names and numbers with a secret; the result is valid JSON."""
        # Backslashes are JSON's only way to write characters of a secret in another form.
        escape = "\\" if self._values and self._searched().escaped else "\\u00"
        if escape not in text and not self._numbers and not self._spans(text):
            return text  # nothing is escaped, and no secret found
        try:
            found = json.loads(text, object_pairs_hook=_object)
            clean = self.value(found)
            if clean == found:
                return text
            return json.dumps(clean, ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError):  # no JSON, or too deep
            return self.plain(text)

    def value(self, found: Any) -> Any:
        """Redact parsed JSON. Raises RecursionError."""
        if isinstance(found, str):
            return self.plain(found)
        if isinstance(found, dict):
            make = type(found)  # a dict, or _Pairs
            return make([(self.plain(key), self.value(value)) for key, value in found.items()])
        if isinstance(found, list):
            return [self.value(value) for value in found]
        return self._mask if isinstance(found, int | float) and self.hides(found) else found

    def hides(self, number: int | float) -> bool:
        """True if a secret is this number."""
        return number in self._numbers and not isinstance(number, bool)

    def split(self, text: str, at: int) -> int:
        """The last position up to ``at`` where the text can be cut without cutting a secret."""
        for start, end in sorted(self.find(text), reverse=True):
            if start < at < end:
                at = start
        return at

    def find(self, text: str) -> list[Span]:
        """Spans of secrets, which may overlap."""
        return self._searched().find(well_spelled(text)) if self._values else []

    def _spans(self, text: str) -> list[Span]:
        """Spans to replace, in order."""
        found = self.find(text)
        return self._without_masks(text, _merged(found)) if found else []

    def _without_masks(self, text: str, spans: list[Span]) -> list[Span]:
        """Skip earlier replacements, which may contain a secret themselves."""
        if not self._searched().in_mask or self._mask not in text:
            return spans
        masks = [match.span() for match in re.finditer(re.escape(self._mask), text)]
        return [(a, b) for a, b in spans if not any(start <= a and b <= end for start, end in masks)]


class _Warm:
    """LRU cache of search structures, which bounds the memory of all redactors of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._order: deque[tuple[ReferenceType[Redactor], int]] = deque()
        self._size = 0

    def add(self, hide: Redactor, size: int) -> None:
        with self._lock:
            self._order.append((ref(hide), size))
            self._size += size
            while self._size > _MOST_SIZE and len(self._order) > 1:
                first, taken = self._order.popleft()
                self._size -= taken
                cooled = first()
                if cooled is not None and cooled is not hide:
                    cooled.cool()


_warm = _Warm()


class _Pairs(dict[str, Any]):
    """A JSON object with duplicate names, which keeps all pairs in order."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and list(other.items()) == list(self._pairs)

    __hash__ = None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Pairs(pairs)


def _merged(spans: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


NOTHING = Redactor(())
"""Redactor without secrets."""


def redact(text: str, hides: Iterable[Redactor]) -> str:
    """Redact by all of them at once: a secret of one session may be a prefix of another's."""
    return _replaced(text, _merged(span for hide in hides for span in hide.find(text)), HIDDEN)


_made: WeakValueDictionary[tuple[str, ...], Redactor] = WeakValueDictionary()


def redactor(secrets: Iterable[str]) -> Redactor:
    """The redactor of these secrets, shared while it is referenced (flyweight)."""
    given = tuple(filter(None, secrets))
    if not given:
        return NOTHING
    found = _made.get(given)
    if found is None:
        found = _made[given] = Redactor(given)
    return found


def latest(hides: Iterable[Redactor]) -> tuple[Redactor, ...]:
    """The first redactors, limited to a number that is affordable for each text."""
    found: dict[Redactor, None] = {}
    size = 0
    for hide in hides:
        size += hide.size
        if found and (size > _MOST_TOGETHER or len(found) == _MOST_REDACTORS):
            break
        found[hide] = None
    return tuple(found)


def _replaced(text: str, spans: Sequence[Span], mask: str) -> str:
    parts: list[str] = []
    at = 0
    for start, end in spans:
        parts += text[at:start], mask
        at = end
    return "".join([*parts, text[at:]]) if parts else text
