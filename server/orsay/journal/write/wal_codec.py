"""Codec of the write-ahead log: rows as marshalled tuples, since the event loop packs each of them.

The writer thread decodes them later. Only rows with secrets are decoded at once, to redact them: secrets must
not stand in a file (S3).
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from typing import Any

from ..records import CallEnded, CallStarted, EvaluationSaved, Prompted, Row, SessionEnded, SessionOpened
from .batch import COLUMNS, Batch, encode

__all__ = ["FORM", "add", "pack"]

_CLASSES: tuple[Any, ...] = (
    SessionOpened,
    SessionEnded,
    Prompted,
    CallStarted,
    CallEnded,
    EvaluationSaved,
)
_NUMBERS = {each: number for number, each in enumerate(_CLASSES)}
_MOST = 2**63
_tuple: Any = tuple.__new__  # what _make does

FORM = (4, COLUMNS, [(each.__name__, each._fields) for each in _CLASSES])
"""Version of the format: a reader with another one leaves the file alone."""


def pack(rows: Sequence[tuple[Row, Any]]) -> bytes | None:
    """The first of each pair; None where only the tables can judge a row of them."""
    plain = []
    hidden = False
    for row, _ in rows:
        kind = type(row)
        if kind is SessionOpened and not _fits(row):
            return None
        if row.hide is not None:
            hidden = True
        plain.append((_NUMBERS[kind], *row))
    try:
        return marshal.dumps(encode(row for row, _ in rows).tables() if hidden else plain)
    except ValueError:  # a value of a class that marshal does not know
        return None


def add(batch: Batch, data: bytes) -> None:
    """Add packed rows to the batch."""
    found = marshal.loads(data)
    if isinstance(found, tuple):
        batch.take(Batch(*found))
    else:
        encode([_tuple(_CLASSES[row[0]], row[1:]) for row in found], batch)


def _fits(row: Row) -> bool:
    """False for a number that is larger than a column takes; users choose some of them."""
    return all(type(value) is not int or -_MOST <= value < _MOST for value in row)
