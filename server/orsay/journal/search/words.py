"""Normalization of texts and queries to words.

Words are letters and digits, in lower case and without accents; each Chinese, Japanese or Korean character is
a word, since no spaces separate them. So no query can contain syntax of the database.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["LONGEST_DOCUMENT", "Phrase", "as_fts5", "as_tsquery", "document", "normal", "phrases", "texts_of"]

LONGEST_DOCUMENT = 200_000  # characters; later text of a session is not searchable
_LONGEST_QUERY = 1000
_MOST_PHRASES = 24
_APART = re.compile(r"[\W_]+")
_CHARACTERS = re.compile("([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f])")
_PARTS = re.compile(r'"([^"]*)"?|([^\s"]+)')


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sequence of words. The last is a prefix (``ban`` finds banana) unless the phrase was quoted."""

    words: tuple[str, ...]
    open_end: bool


def normal(text: str) -> str:
    """Words with single spaces between them."""
    if not text.isascii():
        parts = unicodedata.normalize("NFKD", text)
        kept = "".join(each for each in parts if not unicodedata.combining(each))
        text = _CHARACTERS.sub(r" \1 ", unicodedata.normalize("NFC", kept))
    return _APART.sub(" ", text).strip().lower()


def document(texts: Iterable[str]) -> str:
    """Document for the index, from the texts of a session."""
    return normal("\n".join(texts)[:LONGEST_DOCUMENT])[:LONGEST_DOCUMENT]


def texts_of(value: Any) -> Iterator[str]:
    """Every string and number in a JSON value, without images and without the names of fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from texts_of(each)
    elif isinstance(value, dict):
        image = "data" in value and "mimeType" in value
        for name, each in value.items():
            if name != "type" and not (image and name == "data"):
                yield from texts_of(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def phrases(query: str) -> list[Phrase]:
    """Phrases of a query: single words, and quoted sequences; all must occur, in any order."""
    found = []
    for quoted, bare in _PARTS.findall(query[:_LONGEST_QUERY]):
        words = tuple(normal(quoted or bare).split())
        if words:
            found.append(Phrase(words, open_end=not quoted))
    return found[:_MOST_PHRASES]


def as_fts5(wanted: Iterable[Phrase]) -> str:
    """Query for SQLite's ``MATCH``."""
    return " AND ".join(f'"{" ".join(each.words)}"' + "*" * each.open_end for each in wanted)


def as_tsquery(wanted: Iterable[Phrase]) -> str:
    """Query for PostgreSQL's ``to_tsquery``."""
    return " & ".join(
        "(" + " <-> ".join(f"'{word}'" for word in each.words) + ":*" * each.open_end + ")" for each in wanted
    )
