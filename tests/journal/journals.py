"""Journals to read, of both kinds: a SQLite file, and a PostgreSQL database of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from orsay.journal.database import Store

from tests.journal.fill import Fill, Filled, empty_journal, fill

__all__ = ["KINDS", "filled_journal"]

KINDS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.database))


@contextmanager
def filled_journal(
    request: pytest.FixtureRequest, kind: str, folder: Path, what: Fill
) -> Iterator[tuple[Store, Filled]]:
    """A journal with these sessions. A module that reads both kinds has a fixture ``postgres``, a server."""
    place = folder / "journal.db" if kind == "sqlite" else request.getfixturevalue("postgres").new_database()
    store = empty_journal(place)
    try:
        with store.writing() as connection:
            made = fill(connection, what)
        yield store, made
    finally:
        store.close()
