"""Journals to read, of both kinds: a SQLite file, and a PostgreSQL database of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orsay.journal.store import Store

from tests.journal.fill import Fill, Filled, empty_journal, fill
from tests.journal.postgres import running_postgres

__all__ = ["KINDS", "filled_journal"]

KINDS = ("sqlite", "postgresql")


@contextmanager
def filled_journal(kind: str, folder: Path, what: Fill) -> Iterator[tuple[Store, Filled]]:
    """A journal with these sessions; skips where there is no PostgreSQL."""
    with contextmanager(_place)(kind, folder) as place:
        store = empty_journal(place)
        try:
            with store.writing() as connection:
                made = fill(connection, what)
            yield store, made
        finally:
            store.close()


def _place(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield str(folder / "journal.db")
        return
    for server in running_postgres():
        yield server.new_database()
