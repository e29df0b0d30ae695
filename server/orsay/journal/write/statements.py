"""Statements that write batches of rows: few and large ones, made once from the tables.

Each statement releases the interpreter lock, and acquiring it again is slow while other threads are busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol

from pydantic_core import to_json

from ...logs import get_logger
from ..driver_errors import is_about_rows, journal_down
from ..schema import metadata
from .batch import COLUMNS, FIRST_STAYS, Batch, Params, single, writable

__all__ = ["PostgresStatements", "SqliteStatements", "Statements", "write_all", "write_row"]

_COLUMNS = {
    **COLUMNS,
    "whole": COLUMNS["sessions"] + COLUMNS["ends"].removeprefix("id"),
    "changed": COLUMNS["calls"],
}
_TABLES = {"ends": "sessions", "whole": "sessions", "changed": "calls"}
_TOTAL_S = COLUMNS["calls"].split().index("total_s")
_WITH_BYTES = ("large_values", "evaluations")
_MOST_ROWS = 64
_MOST_BEGUN = 100_000
_NULL = float("nan")
log = get_logger("journal")

_POSTGRES_TYPES = {
    "BigInteger": "bigint",
    "Boolean": "bool",
    "Float": "float8",
    "Integer": "integer",
    "LargeBinary": "bytea",
    "String": "text",
    "Text": "text",
}


class Statements(Protocol):
    """Writer of batches. ``write`` commits one, or raises an error of the driver and writes nothing."""

    def write(self, batch: Batch) -> None: ...


def write_all(statements: Statements, batch: Batch, location: str) -> list[Batch]:
    """Commit the batch, or row by row if a row is invalid; returns the rows that the database refused.

    Raises the driver's errors about the database.
    """
    try:
        statements.write(batch)
        return []
    except Exception as exc:
        if not is_about_rows(exc):
            raise
    return [row for row in single(batch) if not write_row(statements, row, location)]


def write_row(statements: Statements, row: Batch, location: str) -> bool:
    """Write one row; returns False if the database refused it, which must not stop the others."""
    row = writable(row)
    try:
        statements.write(row)
    except Exception as exc:
        if not is_about_rows(exc):
            raise
        found = {name: list(rows) for name, rows in zip(COLUMNS, row.tables(), strict=True) if rows}
        log.error("journal_row_refused", rows=found, reason=journal_down(exc, location).reason)
        return False
    return True


class SqliteStatements:
    """Statements for SQLite. ``connection`` is the driver's, with explicit transactions.

    Calls that were written at their start are updated by the statement ``changed``, which costs more: SQLite
    saves each page that it touches, to be able to undo this statement alone.
    """

    def __init__(self, connection: Any) -> None:
        self._execute: Callable[..., Any] = connection.execute
        self._begun: set[int] = set()  # calls written without a result; may be incomplete

    def write(self, batch: Batch) -> None:
        statements = [
            (name, len(part), _bound(part))
            for name, rows in self._tables(batch)
            for part in _parts(list(rows.values()))
        ]
        self._write(statements)
        if self._begun:
            self._begun -= batch.calls.keys()
        if len(self._begun) > _MOST_BEGUN:  # of sessions that were lost
            self._begun.clear()
        self._begun.update(id for id, row in batch.calls.items() if row[_TOTAL_S] is None)

    def _write(self, statements: list[tuple[str, int, list[Any]]]) -> None:
        if len(statements) == 1:  # a transaction by itself
            self._write_rows(*statements[0])
            return
        execute = self._execute
        execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                self._write_rows(*statement)
            execute("COMMIT")
        except BaseException as exc:
            _roll_back(execute, exc)
            raise

    def _write_rows(self, name: str, rows: int, values: list[Any]) -> None:
        written = self._execute(_sqlite(name, rows), values).rowcount
        if name == "calls" and written < rows:  # one of them exists already
            self._execute(_sqlite("changed", rows), values)

    def _tables(self, batch: Batch) -> Iterator[tuple[str, dict[Any, Params]]]:
        changed = self._begun & batch.calls.keys()
        for name, rows in _tables(batch):
            if changed and name == "calls":
                yield "changed", {id: rows[id] for id in changed}
                rows = {id: row for id, row in rows.items() if id not in changed}
            if rows:
                yield name, rows


def _tables(batch: Batch) -> Iterator[tuple[str, dict[Any, Params]]]:
    """The rows for each statement. A session that begins and ends in the batch is one row, of ``whole``."""
    both = batch.sessions.keys() & batch.ends.keys()
    if both:
        yield "whole", {id: _whole(batch.sessions[id], batch.ends[id]) for id in both}
    for name, rows in zip(COLUMNS, batch.tables(), strict=True):
        if both and name in ("sessions", "ends"):
            rows = {id: row for id, row in rows.items() if id not in both}
        if rows:
            yield name, rows


def _whole(session: Params, end: Params) -> Params:
    """A row of ``sessions`` with its end."""
    _id, *changes = end
    return (*session, *changes)


def _roll_back(execute: Callable[..., Any], exc: BaseException) -> None:
    """Roll back, which SQLite may have done already; an error of it is added to ``exc`` as a note."""
    try:
        execute("ROLLBACK")
    except Exception as failed:
        exc.add_note(f"and then: {failed}")


def _parts(rows: Sequence[Params]) -> Iterator[Sequence[Params]]:
    """Parts of powers of two in size, which need few different statements: preparing one takes six times as
    long as executing it, and prepared ones are cached.
    """
    at, size = 0, _MOST_ROWS
    while at < len(rows):
        while size > len(rows) - at:
            size //= 2
        yield rows[at : at + size]
        at += size


def _bound(part: Sequence[Params]) -> list[Any]:
    """Parameters of the rows, with NaN, which SQLite stores as NULL, for None, and 0 and 1 for booleans: for
    None and booleans the driver searches for adapters first, which takes a quarter of its time.
    """
    return [
        _NULL if value is None else value if value is not True and value is not False else int(value)
        for row in part
        for value in row
    ]


@cache
def _sqlite(name: str, rows: int) -> str:
    columns = _COLUMNS[name].split()
    row = f"({','.join('?' * len(columns))})"
    values = f"VALUES {','.join([row] * rows)}"
    if name == "ends":
        places = {column: at for at, column in enumerate(columns, 1) if column != "id"}
        changes = ",".join(f'"{column}"=v.column{at}' for column, at in places.items())
        return f"UPDATE OR ROLLBACK sessions SET {changes} FROM ({values}) AS v WHERE sessions.id=v.column1"
    conflict = "ON CONFLICT DO NOTHING" if name == "calls" else _conflict(name, columns)
    return f"INSERT OR ROLLBACK {_into(name, columns)} {values} {conflict}"


class PostgresStatements:
    """Statements for PostgreSQL. ``connection`` is psycopg's, in autocommit.

    The rows of a table are sent as one JSON value, which PostgreSQL unpacks: for this process a tenth of the
    work of single parameters. Rows with bytes are sent as arrays.
    """

    def __init__(self, connection: Any) -> None:
        self._cursor = connection.cursor()
        self._execute: Callable[..., Any] = self._cursor.execute

    def write(self, batch: Batch) -> None:
        statements = [
            (
                _postgres(name),
                _arrays(rows) if name in _WITH_BYTES else [to_json(list(rows.values())).decode()],
            )
            for name, rows in _tables(batch)
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
    columns = _COLUMNS[name].split()
    table = metadata.tables[_TABLES.get(name, name)]
    types = [_POSTGRES_TYPES[type(table.c[column].type).__name__] for column in columns]
    if name in _WITH_BYTES:
        rows = f"SELECT * FROM unnest({','.join(f'%s::{each}[]' for each in types)})"
    else:
        found = ",".join(f"(r->>{at})::{each}" for at, each in enumerate(types))
        rows = f"SELECT {found} FROM jsonb_array_elements(%s::jsonb) AS r"
    if name == "ends":
        changes = ",".join(f'"{column}"=v."{column}"' for column in columns if column != "id")
        return f"UPDATE sessions SET {changes} FROM ({rows}) AS v({_quoted(columns)}) WHERE sessions.id=v.id"
    return f"INSERT {_into(name, columns)} {rows} {_conflict(name, columns)}"


def _quoted(columns: Sequence[str]) -> str:
    return ",".join(f'"{column}"' for column in columns)


def _into(name: str, columns: Sequence[str]) -> str:
    return f"INTO {_TABLES.get(name, name)} ({_quoted(columns)})"


def _conflict(name: str, columns: Sequence[str]) -> str:
    if name == "whole" or name in FIRST_STAYS:
        return "ON CONFLICT DO NOTHING"
    table = _TABLES.get(name, name)
    keys = [column.name for column in metadata.tables[table].primary_key]
    changes = ",".join(f'"{column}"=excluded."{column}"' for column in columns if column not in keys)
    only = " WHERE calls.total_s IS NULL" if table == "calls" else ""  # keeps a call that has its result
    return f"ON CONFLICT ({_quoted(keys)}) DO UPDATE SET {changes}{only}"
