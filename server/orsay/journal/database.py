"""Database of the journal: opening it, the settings of its connections, the quarantine of a damaged file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError

from ..errors import JournalDown
from ..logs import get_logger
from .driver_errors import journal_down
from .migrations import is_current, migrate
from .options import JournalOptions, shown
from .write.statements import SqliteStatements, write_all
from .write.wal import IS_HERE, left_behind

__all__ = ["Store", "quarantine"]

_BUSY_MS = 500
_CONNECT_S = 5
_WRITER_CACHE_KIB = 16_000
_WAL_PAGES = 8_000  # checkpoint threshold; high, since the same pages change repeatedly
_PREPARED_AFTER = 5
_OPTIONS_OF_WRITES = {"orsay_writes": True}

log = get_logger("journal")


class Store:
    """Database of a journal. Call ``open`` first."""

    def __init__(self, options: JournalOptions) -> None:
        self.options = options
        self.location = shown(options.url)
        self._engine: Engine | None = None
        self._inode = 0
        self.is_open = False

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise JournalDown(f"the journal {self.location} is not open")
        return self._engine

    @property
    def is_sqlite(self) -> bool:
        return self.options.path is not None

    def open(self) -> None:
        """Create or migrate the database; may be called again. Raises JournalDown."""
        try:
            if self._engine is None:
                if self.options.path is not None:
                    self._inode = _prepare(self.options.path)
                self._engine = _sqlite(self.options) if self.is_sqlite else _postgres(self.options)
            with self.reading() as connection:
                current = is_current(connection)
            if not current:
                with self.writing() as connection:
                    migrate(connection)
            if self.options.path is not None and IS_HERE:
                self._take_over(self.options.path)
            self.is_open = True
        except Exception as exc:  # of any layer
            if not self.is_open:
                self.close()
            raise journal_down(exc, self.location) from exc

    def _take_over(self, path: Path) -> None:
        """Replay the write-ahead logs that killed servers left behind."""
        with left_behind(path) as batches:
            if not batches:
                return
            connection, release = self.driver_connection()
            try:
                statements = SqliteStatements(connection)
                for batch in batches:
                    write_all(statements, batch, self.location)
            finally:
                release()
            log.info("journal_wal_replayed", groups=len(batches))

    def look(self) -> None:
        """Raises JournalDown if the open file was removed."""
        path = self.options.path
        if path is None:
            return
        try:
            there = path.stat().st_ino == self._inode
        except FileNotFoundError:
            there = False
        if not there:
            reason = f"the file of the journal {self.location} was removed or replaced"
            raise JournalDown(reason, "a new one is created where there is none", kind="lost")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read connection with snapshot isolation, which blocks no other. Raises JournalDown."""
        with self._connected(self.engine) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection with a transaction, committed at the end. Raises JournalDown.

        It blocks the writer of a SQLite journal: keep it to milliseconds.
        """
        with self._connected(self.engine.execution_options(**_OPTIONS_OF_WRITES)) as connection:
            yield connection

    def driver_connection(self) -> tuple[Any, Callable[[], None]]:
        """A raw driver connection in autocommit, and the function that closes it."""
        fairy = self.engine.raw_connection()
        connection = fairy.driver_connection
        assert connection is not None
        fairy.detach()  # the pool does not wait for it, nor close it
        if self.is_sqlite:
            connection.execute(f"PRAGMA cache_size=-{_WRITER_CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint={_WAL_PAGES}")
            connection.execute("PRAGMA temp_store=MEMORY")  # pages as they were before a statement
        else:
            connection.autocommit = True
            connection.prepare_threshold = _PREPARED_AFTER
        return connection, connection.close

    @contextmanager
    def _connected(self, engine: Engine) -> Iterator[Connection]:
        try:
            pool = engine.pool
            with engine.connect() as connection:
                try:
                    with connection.begin():
                        yield connection
                finally:
                    now = self._engine
                    if (now is None or now.pool is not pool) and not connection.invalidated:
                        connection.detach()  # else it would return to a closed pool
        except DatabaseError as exc:
            raise journal_down(exc, self.location) from exc

    def close(self) -> None:
        """Close idle connections; used ones are closed when released."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None
        self.is_open = False


def _prepare(path: Path) -> int:
    """Create the folder, and a file readable by its owner only, since it holds texts of users and models."""
    folder = path.parent
    if not folder.is_dir():
        folder.mkdir(parents=True)
        if folder.name == ".orsay":
            (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_MS / 1000)) as connection:
        if path.stat().st_size == 0:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # only a file without tables takes it
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise OSError(f"its file system has no shared memory, as SQLite needs it (journal mode {mode})")
    return path.stat().st_ino


def _sqlite(options: JournalOptions) -> Engine:
    synchronous = "FULL" if options.durability == "fsync" else "NORMAL"
    engine = create_engine(
        options.url,
        hide_parameters=True,
        pool_size=4,
        max_overflow=16,
        connect_args={"check_same_thread": False, "timeout": _BUSY_MS / 1000, "cached_statements": 128},
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # explicit transactions only
        connection.execute(f"PRAGMA synchronous={synchronous}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("orsay_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres(options: JournalOptions) -> Engine:
    commit = "on" if options.durability == "fsync" else "off"
    engine = create_engine(
        options.url,
        hide_parameters=True,
        pool_size=4,
        max_overflow=16,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": _CONNECT_S,
            # generic plans scan whole tables for rare values
            "prepare_threshold": None,
            "application_name": "orsay",
            "tcp_user_timeout": 10_000,
            "keepalives_idle": 10,
        },
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET synchronous_commit = {commit}")
            cursor.execute("SET lock_timeout = '5s'")
        connection.commit()

    return engine


def quarantine(path: Path) -> Path:
    """Rename a damaged SQLite file, with its ``-wal`` and ``-shm``, and return its new path.

    The name gets ``damaged`` and the time. Raises OSError.
    """
    target = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    number = 1
    while target.exists():
        number += 1
        target = target.with_name(f"{target.name.partition('~')[0]}~{number}")
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(target.with_name(target.name + suffix))
    path.rename(target)
    return target
