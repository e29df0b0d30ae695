"""Codec of the write-ahead log: rows as marshalled tuples, since the event loop packs each of them.

The writer thread decodes them later. Only rows with secrets are decoded at once, to redact them: secrets must
not be written to a file (S3).
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from typing import Any

from ..records import (
    CallEnded,
    CallStarted,
    EvaluationSaved,
    Prompted,
    RolloutLogged,
    RolloutOpened,
    Row,
    SandboxUsed,
    SessionEnded,
    SessionOpened,
)
from .batch import COLUMNS, Batch, encode

__all__ = ["FORM", "add", "pack", "reads"]

_CLASSES: tuple[Any, ...] = (
    SessionOpened,
    SessionEnded,
    Prompted,
    CallStarted,
    CallEnded,
    EvaluationSaved,
    SandboxUsed,
    RolloutOpened,
    RolloutLogged,
)
_NUMBERS = {each: number for number, each in enumerate(_CLASSES)}
_MOST = 2**63
_tuple: Any = tuple.__new__  # what _make does

FORM = (4, COLUMNS, [(each.__name__, each._fields) for each in _CLASSES])
"""Version of the format, and the fields of its rows: a reader adds those that a file lacks, as None.

Tables and classes are added at the end: a file of before has fewer.
"""


def pack(rows: Sequence[tuple[Row, Any]]) -> bytes | None:
    """Pack the rows (first of each pair); None if a row can be validated only by the tables."""
    plain = []
    hidden = False
    for row, _ in rows:
        kind = type(row)
        if isinstance(row, SessionOpened) and not _fits(row):
            return None
        if row.hide is not None:
            hidden = True
        plain.append((_NUMBERS[kind], *row))
    try:
        return marshal.dumps(encode(row for row, _ in rows).tables() if hidden else plain)
    except ValueError:  # a value that marshal does not support
        return None


def add(batch: Batch, data: bytes, form: Any = FORM) -> None:
    """Add packed rows to the batch; ``form`` is the format of their file, which ``reads`` accepts."""
    found = marshal.loads(data)
    _, columns, classes = form
    if isinstance(found, tuple):
        batch.take(Batch(**_tables(found, columns)) if form != FORM else Batch(*found))
    elif form != FORM:
        encode([_row(_CLASSES[kind], classes[kind][1], values) for kind, *values in found], batch)
    else:
        encode([_tuple(_CLASSES[row[0]], row[1:]) for row in found], batch)  # unpacking would double the time


def reads(form: Any) -> bool:
    """True if files of that form can be read: this form, or an earlier one with fewer tables or fields."""
    version, *rest = form
    if version != FORM[0]:
        return False
    columns, classes = rest
    return bool(
        columns.keys() <= COLUMNS.keys()
        and all(set(names.split()) <= set(COLUMNS[table].split()) for table, names in columns.items())
        and len(classes) <= len(_CLASSES)
        and all(
            name == each.__name__ and set(names) <= set(each._fields)
            for each, (name, names) in zip(_CLASSES, classes, strict=False)
        )
    )


def _tables(
    found: tuple[dict[Any, tuple[Any, ...]], ...], columns: dict[str, str]
) -> dict[str, dict[Any, Any]]:
    tables = {}
    for (name, there), rows in zip(columns.items(), found, strict=True):
        names, here = there.split(), COLUMNS[name].split()
        tables[name] = {
            key: tuple(map(dict(zip(names, row, strict=True)).get, here)) for key, row in rows.items()
        }
    return tables


def _row(kind: Any, names: Sequence[str], values: Sequence[Any]) -> Row:
    """The record of those fields; others are None."""
    found: Row = kind(**{**dict.fromkeys(kind._fields), **dict(zip(names, values, strict=True))})
    return found


def _fits(row: SessionOpened) -> bool:
    """False if a number from a client is out of the range of its column."""
    return all(number is None or -_MOST <= number < _MOST for number in (row.task_index, row.step))
