"""A PostgreSQL server for each file that asks for one, and a connection to the journal that is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from orsay.journal.database import Store
from sqlalchemy import Connection

from .fill import Filled
from .postgres import Postgres, running_postgres


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    yield from running_postgres()


@pytest.fixture
def connection(journal: tuple[Store, Filled]) -> Iterator[Connection]:
    """For files whose fixture ``journal`` is a filled one."""
    with journal[0].reading() as connection:
        yield connection
