"""Writes groups of rows, with few and large statements for the drivers, made once from the tables.

Each statement gives the interpreter away, and taking it back is dear when other threads are busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, Protocol

from pydantic_core import to_json

from .groups import COLUMNS, Group, Params
from .schema import metadata

__all__ = ["PostgresSink", "Sink", "SqliteSink"]

_ORDER = ("sessions", "calls", "prompts", "scores", "large_values", "evaluations", "ends")
_KEPT = ("sessions", "prompts", "large_values")  # the first row of a key stays; of others the last
_WITH_BYTES = ("large_values", "evaluations")
_MOST_ROWS = 64
_POSTGRES_TYPES = {
    "BigInteger": "bigint",
    "Boolean": "bool",
    "Float": "float8",
    "Integer": "integer",
    "LargeBinary": "bytea",
    "String": "text",
    "Text": "text",
}


class Sink(Protocol):
    """Where groups go. ``write`` commits one, or raises an error of the driver and has written nothing."""

    def write(self, group: Group) -> None: ...


class SqliteSink:
    """``connection`` is the driver's, with transactions where we say so."""

    def __init__(self, connection: Any) -> None:
        self._execute: Callable[..., Any] = connection.execute

    def write(self, group: Group) -> None:
        statements = [
            (_sqlite(name, len(part)), tuple(chain.from_iterable(part)))
            for name in _ORDER
            if (rows := getattr(group, name))
            for part in _parts(list(rows.values()))
        ]
        execute = self._execute
        if len(statements) == 1:  # a transaction by itself
            execute(*statements[0])
            return
        execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                execute(*statement)
            execute("COMMIT")
        except BaseException as exc:
            _roll_back(execute, exc)
            raise


def _roll_back(execute: Callable[..., Any], exc: BaseException) -> None:
    """SQLite may have done so already; what led here is told, whatever this says."""
    try:
        execute("ROLLBACK")
    except Exception as failed:
        exc.add_note(f"and then: {failed}")


def _parts(rows: Sequence[Params]) -> Iterator[Sequence[Params]]:
    """As few as may be: a prepared statement is kept for each number of rows."""
    for at in range(0, len(rows), _MOST_ROWS):
        yield rows[at : at + _MOST_ROWS]


@cache
def _sqlite(name: str, rows: int) -> str:
    columns = COLUMNS[name].split()
    row = f"({','.join('?' * len(columns))})"
    values = f"VALUES {','.join([row] * rows)}"
    if name == "ends":
        changes = ",".join(f'"{column}"=v.column{at}' for at, column in enumerate(columns, 1) if at > 1)
        return f"UPDATE sessions SET {changes} FROM ({values}) AS v WHERE sessions.id=v.column1"
    return f"{_insert(name, columns)} {values} {_conflict(name, columns)}"


class PostgresSink:
    """``connection`` is psycopg's, in autocommit.

    The rows of a table go over as one JSON value, which PostgreSQL takes apart: for us that is a tenth of the
    work that as many parameters are. Bytes go as arrays.
    """

    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()
        self._execute: Callable[..., Any] = self._cursor.execute

    def write(self, group: Group) -> None:
        statements = [
            (
                _postgres(name),
                _arrays(rows) if name in _WITH_BYTES else [to_json(list(rows.values())).decode()],
            )
            for name in _ORDER
            if (rows := getattr(group, name))
        ]
        execute = self._execute
        if len(statements) == 1:
            execute(*statements[0], prepare=True)
            return
        execute("BEGIN")
        try:
            for statement in statements:
                execute(*statement, prepare=True)
            execute("COMMIT")
        except BaseException as exc:
            _roll_back(execute, exc)
            raise


def _arrays(rows: dict[Any, Params]) -> list[list[Any]]:
    return list(map(list, zip(*rows.values(), strict=True)))


@cache
def _postgres(name: str) -> str:
    columns = COLUMNS[name].split()
    table = metadata.tables["sessions" if name == "ends" else name]
    types = [_POSTGRES_TYPES[type(table.c[column].type).__name__] for column in columns]
    if name in _WITH_BYTES:
        rows = f"SELECT * FROM unnest({','.join(f'%s::{each}[]' for each in types)})"
    else:
        found = ",".join(f"(r->>{at})::{each}" for at, each in enumerate(types))
        rows = f"SELECT {found} FROM jsonb_array_elements(%s::jsonb) AS r"
    if name == "ends":
        changes = ",".join(f'"{column}"=v."{column}"' for column in columns[1:])
        return f"UPDATE sessions SET {changes} FROM ({rows}) AS v({_quoted(columns)}) WHERE sessions.id=v.id"
    return f"{_insert(name, columns)} {rows} {_conflict(name, columns)}"


def _quoted(columns: Sequence[str]) -> str:
    return ",".join(f'"{column}"' for column in columns)


def _insert(name: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {name} ({_quoted(columns)})"


def _conflict(name: str, columns: Sequence[str]) -> str:
    if name in _KEPT:
        return "ON CONFLICT DO NOTHING"
    keys = [column.name for column in metadata.tables[name].primary_key]
    changes = ",".join(f'"{column}"=excluded."{column}"' for column in columns if column not in keys)
    return f"ON CONFLICT ({_quoted(keys)}) DO UPDATE SET {changes}"
