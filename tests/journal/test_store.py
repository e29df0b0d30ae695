"""The database behind the journal, of both kinds."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from tests.journal.fill import empty_journal
from tests.journal.journals import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_in_use_is_closed_when_it_comes_back_to_a_closed_store(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    place = (
        tmp_path / "journal.db" if kind == "sqlite" else request.getfixturevalue("postgres").new_database()
    )
    store = empty_journal(place)
    with store.reading() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        store.close()
        assert connection.scalar(text("SELECT 1")) == 1, "it was in use"
    if isinstance(driver, psycopg.Connection):
        assert driver.closed
    else:
        with pytest.raises(Exception, match="closed database"):
            driver.execute("SELECT 1")
