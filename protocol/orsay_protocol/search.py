"""Search for secrets in a text, in all forms at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from itertools import islice
from typing import Any

from .escaped import Escaped
from .finding import LONG, SHORTEST, Index, Span
from .spellings import encodings, images, is_plain, numerals_of

__all__ = ["Search"]

_MEMBER = 8
_MOST_MEMBERS = 512
_LEAST_SIZE = 500  # of a search beside its places, which are about as large


class Search:
    """Search structure for some secrets, in all their forms."""

    __slots__ = ("escaped", "in_mask", "index", "longest", "size")

    def __init__(self, values: Set[str], mask: str) -> None:
        members = set(islice((member for value in values for member in _members(value)), _MOST_MEMBERS))
        forms = {form for value in values for form in encodings(value)}
        numerals = {form for value in values for form in numerals_of(value)}
        spaced = {value.replace(" ", "+") for value in values if len(value) <= LONG}  # as queries have it
        texts = values | spaced | forms | _unescaped(values | spaced)
        whole = (numerals | members | _unescaped(members)) - texts
        self.index = Index(texts, whole)
        odd = [each for each in values | spaced | forms | members if not is_plain(each)]
        self.escaped = Escaped(odd, self.index)
        self.in_mask = any(each in mask for each in texts | whole)
        self.longest = max(map(len, texts | whole), default=0)
        self.size = _LEAST_SIZE + self.index.size

    def find(self, text: str) -> list[Span]:
        return [*self.index.find(text), *self.escaped.find(text)]


def _members(secret: str) -> Iterator[str]:
    """Lines of a multi-line secret, and strings of a JSON secret: each may occur alone."""
    lines = [line.strip() for line in secret.splitlines()]
    texts = lines if len(lines) > 1 else []
    if secret.lstrip()[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            texts += _texts(json.loads(secret))
    yield from (text for text in texts if len(text) >= _MEMBER)


def _unescaped(texts: Iterable[str]) -> set[str]:
    """Unescaped forms of the texts that look like escapes."""
    found = {image for text in texts if not is_plain(text) for image in images(text)}
    return {image for image in found if len(image) >= SHORTEST}


def _texts(found: Any) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict | list):
        for each in found.values() if isinstance(found, dict) else found:
            yield from _texts(each)
