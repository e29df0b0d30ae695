"""Full-text index (inverted index) over sessions: a separate file for SQLite, else tables in the database.

An index can always be made again. The file is apart so that filling it never holds up the writer of the
journal.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, text

from ...errors import JournalDown
from .words import Phrase, as_fts5, as_tsquery

__all__ = ["SearchStore", "Span", "forget", "search_file", "search_store"]

_VERSION = 1
_BUSY_S = 0.2
Span = tuple[int, int]
"""Range of session ids that are indexed."""


class SearchStore(Protocol):
    """Inverted index of sessions by id; ``pending`` are sessions that may still get more words."""

    def find(self, wanted: Sequence[Phrase], first: int, before: int, limit: int) -> list[int]:
        """Sessions from ``first`` on, before ``before``, with all the phrases, newest first."""

    def known(self, first: int) -> set[int]:
        """Sessions from that id on that are in the index."""

    def span(self) -> Span | None: ...

    def set_span(self, span: Span) -> None: ...

    def pending(self) -> dict[int, int]:
        """Sessions that had not ended, with the number of their calls that are in the index."""

    def put(self, documents: Iterable[tuple[int, str, int | None]]) -> None:
        """Add a session with its words and, if it is open, the number of its calls."""

    def drop(self, sessions: Sequence[int]) -> None:
        """Remove sessions."""

    def oldest(self, limit: int) -> list[int]: ...


def search_file(path: Path) -> Path:
    """The index of the SQLite journal at ``path``."""
    return path.with_name(f"{path.stem}-search{path.suffix}")


@contextmanager
def search_store(connection: Connection, *, fill: bool) -> Iterator[SearchStore | None]:
    """Open the index of that journal. With ``fill``, changes are committed at the end of the block.

    With ``fill`` None if another process is filling it. Raises JournalDown if it cannot be stored.
    """
    if connection.dialect.name == "sqlite":
        path = search_file(Path(str(connection.engine.url.database)))
        try:
            with contextlib.closing(_open(path)) as file:
                yield SqliteSearch(file) if not fill or _begin(file) else None
                if file.in_transaction:
                    file.execute("COMMIT")
        except sqlite3.Error as exc:
            raise JournalDown(
                f"the search index {path} does not work: {exc}",
                "remove that file: the next search builds it again",
            ) from exc
    else:
        with connection.engine.connect() as own, own.begin():
            _prepare(own)
            yield PostgresSearch(own) if not fill or _is_alone(own) else None


def forget(connection: Connection) -> None:
    """Delete the index of that journal; the next search builds it again."""
    if connection.dialect.name == "sqlite":
        _remove(search_file(Path(str(connection.engine.url.database))))
        return
    with connection.engine.connect() as own, own.begin():
        for name in ("search_words", "search_pending", "search_span"):
            own.execute(text(f"DROP TABLE IF EXISTS {name}"))


def _remove(path: Path) -> None:
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        each.unlink(missing_ok=True)


def _begin(file: sqlite3.Connection) -> bool:
    try:
        file.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as exc:
        if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


def _is_alone(connection: Connection) -> bool:
    return bool(connection.execute(text("SELECT pg_try_advisory_xact_lock(7461001)")).scalar())


def _open(path: Path) -> sqlite3.Connection:
    """Open the file; a damaged one is replaced, since the index can be rebuilt."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # private: it holds texts of users and models
    except OSError as exc:
        raise JournalDown(
            f"the search index {path} cannot be written: {exc.strerror}", "let this user write to its folder"
        ) from exc
    try:
        return _connect(path)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:
        _remove(path)
        return _open(path)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=OFF")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            connection.executescript(_TABLES)
    except BaseException:
        connection.close()
        raise
    return connection


_TABLES = f"""
BEGIN IMMEDIATE;
DROP TABLE IF EXISTS words;
DROP TABLE IF EXISTS span;
DROP TABLE IF EXISTS pending;
CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'unicode61 remove_diacritics 0', columnsize = 0);
CREATE TABLE span (one INTEGER PRIMARY KEY, low INTEGER NOT NULL, high INTEGER NOT NULL);
CREATE TABLE pending (session INTEGER PRIMARY KEY, calls INTEGER NOT NULL);
PRAGMA user_version = {_VERSION};
COMMIT;
"""


class SqliteSearch:
    """An FTS5 table in a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._run = connection.execute
        self._run_many = connection.executemany

    def find(self, wanted: Sequence[Phrase], first: int, before: int, limit: int) -> list[int]:
        query = (
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid >= ? AND rowid < ?"
            " ORDER BY rowid DESC LIMIT ?"
        )
        return [id for (id,) in self._run(query, (as_fts5(wanted), first, before, limit))]

    def known(self, first: int) -> set[int]:
        return {id for (id,) in self._run("SELECT rowid FROM words WHERE rowid >= ?", (first,))}

    def span(self) -> Span | None:
        found: Span | None = self._run("SELECT low, high FROM span").fetchone()
        return found

    def set_span(self, span: Span) -> None:
        self._run("INSERT OR REPLACE INTO span (one, low, high) VALUES (1, ?, ?)", span)

    def pending(self) -> dict[int, int]:
        return dict(self._run("SELECT session, calls FROM pending").fetchall())

    def put(self, documents: Iterable[tuple[int, str, int | None]]) -> None:
        for session, words, number_of_calls in documents:
            self._run("DELETE FROM words WHERE rowid = ?", (session,))
            self._run("INSERT INTO words (rowid, text) VALUES (?, ?)", (session, words))
            if number_of_calls is None:
                self._run("DELETE FROM pending WHERE session = ?", (session,))
            else:
                self._run("INSERT OR REPLACE INTO pending VALUES (?, ?)", (session, number_of_calls))

    def drop(self, sessions: Sequence[int]) -> None:
        self._run_many("DELETE FROM words WHERE rowid = ?", [(id,) for id in sessions])
        self._run_many("DELETE FROM pending WHERE session = ?", [(id,) for id in sessions])

    def oldest(self, limit: int) -> list[int]:
        return [id for (id,) in self._run("SELECT rowid FROM words ORDER BY rowid LIMIT ?", (limit,))]


class PostgresSearch:
    """Index for PostgreSQL: three tables beside the journal's own, made at the first search."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(self, wanted: Sequence[Phrase], first: int, before: int, limit: int) -> list[int]:
        query = (
            "SELECT session FROM search_words WHERE words @@ to_tsquery('simple', :query)"
            " AND session >= :first AND session < :before"
            " ORDER BY session DESC LIMIT :limit"
        )
        values = {"query": as_tsquery(wanted), "first": first, "before": before, "limit": limit}
        return list(self._connection.execute(text(query), values).scalars())

    def known(self, first: int) -> set[int]:
        query = "SELECT session FROM search_words WHERE session >= :first"
        return set(self._connection.execute(text(query), {"first": first}).scalars())

    def span(self) -> Span | None:
        row = self._connection.execute(text("SELECT low, high FROM search_span")).one_or_none()
        return None if row is None else (row.low, row.high)

    def set_span(self, span: Span) -> None:
        query = (
            "INSERT INTO search_span VALUES (1, :low, :high)"
            " ON CONFLICT (one) DO UPDATE SET low = excluded.low, high = excluded.high"
        )
        self._connection.execute(text(query), {"low": span[0], "high": span[1]})

    def pending(self) -> dict[int, int]:
        found = self._connection.execute(text("SELECT session, calls FROM search_pending"))
        return {row.session: row.calls for row in found}

    def put(self, documents: Iterable[tuple[int, str, int | None]]) -> None:
        """Add all with one statement, since each is a round trip."""
        found = list(documents)
        self._run_arrays(
            "INSERT INTO search_words SELECT session, to_tsvector('simple', words)"
            " FROM unnest(CAST(:a AS bigint[]), CAST(:b AS text[])) AS new (session, words)"
            " ON CONFLICT (session) DO UPDATE SET words = excluded.words",
            [(session, words) for session, words, _ in found],
        )
        ended = [session for session, _, number_of_calls in found if number_of_calls is None]
        self._forget("search_pending", ended)
        self._run_arrays(
            "INSERT INTO search_pending SELECT session, calls"
            " FROM unnest(CAST(:a AS bigint[]), CAST(:b AS int[])) AS new (session, calls)"
            " ON CONFLICT (session) DO UPDATE SET calls = excluded.calls",
            [(session, calls) for session, _, calls in found if calls is not None],
        )

    def _run_arrays(self, statement: str, rows: Sequence[tuple[int, str | int]]) -> None:
        if rows:
            values = {"a": [row[0] for row in rows], "b": [row[1] for row in rows]}
            self._connection.execute(text(statement), values)

    def _forget(self, table: str, sessions: Sequence[int]) -> None:
        if sessions:
            query = f"DELETE FROM {table} WHERE session = ANY(:sessions)"
            self._connection.execute(text(query), {"sessions": list(sessions)})

    def drop(self, sessions: Sequence[int]) -> None:
        self._forget("search_words", sessions)
        self._forget("search_pending", sessions)

    def oldest(self, limit: int) -> list[int]:
        query = "SELECT session FROM search_words ORDER BY session LIMIT :limit"
        return list(self._connection.execute(text(query), {"limit": limit}).scalars())


def _prepare(connection: Connection) -> None:
    """Make the tables, unless they exist."""
    there = text("SELECT to_regclass('search_words')")
    if connection.execute(there).scalar() is not None:
        return
    connection.execute(text("SELECT pg_advisory_xact_lock(7461001)"))
    if connection.execute(there).scalar() is not None:
        return
    for statement in (
        "CREATE TABLE search_span (one INT PRIMARY KEY, low BIGINT NOT NULL, high BIGINT NOT NULL)",
        "CREATE TABLE search_pending (session BIGINT PRIMARY KEY, calls INT NOT NULL)",
        "CREATE TABLE search_words (session BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)",
        "CREATE INDEX search_words_words ON search_words USING gin (words)",
    ):
        connection.execute(text(statement))
