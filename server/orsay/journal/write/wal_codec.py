"""Rows as the files of the newest ones have them: as they are, since the event loop packs each of them.

They are decoded later, in the thread that writes the tables. Only what comes with secrets is decoded at once,
and the secrets taken out: they must not stand in a file (S3).
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from typing import Any

from ..records import CallEnded, CallStarted, EvaluationSaved, Prompted, Row, SessionEnded, SessionOpened
from .batch import COLUMNS, Group, encode

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
"""What a reader must know alike."""


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


def add(group: Group, data: bytes) -> None:
    """Have what was packed in the group."""
    found = marshal.loads(data)
    if isinstance(found, tuple):
        group.take(Group(*found))
    else:
        encode([_tuple(_CLASSES[row[0]], row[1:]) for row in found], group)


def _fits(row: Row) -> bool:
    """Whether the numbers that users choose are no larger than a column takes."""
    return all(type(value) is not int or -_MOST <= value < _MOST for value in row)
