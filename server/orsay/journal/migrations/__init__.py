"""Brings a journal's tables to what this code expects. ``versions`` holds the steps, for Alembic.

A new step is a file in ``versions`` that names the one before it, and its name goes into ``HEAD`` here.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from ...errors import JournalDown

__all__ = ["HEAD", "VERSION_TABLE", "is_current", "migrate"]

HEAD = "0004"
VERSION_TABLE = "journal_version"
_LOCK = 0x6F727361790001  # of PostgreSQL: servers that start together migrate one after the other


def is_current(connection: Connection) -> bool:
    """True where no migration is due. Raises JournalDown for a journal that newer code has made."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return False
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if found is not None and found > HEAD:
        raise JournalDown(
            f"the journal is of a newer version of Orsay (its tables: {found}, known here: {HEAD})",
            "upgrade Orsay, or name another journal",
        )
    return bool(found == HEAD)


def migrate(connection: Connection) -> None:
    """Make the tables or change them, in the transaction that the connection has."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    if is_current(connection):
        return
    from alembic import command  # slow to load, and hardly ever needed
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
