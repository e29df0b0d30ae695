"""Schema migrations of the journal, with Alembic. ``versions`` holds the steps.

A new step is a file in ``versions`` that names its predecessor; ``HEAD`` here is the name of the last step.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from ...errors import JournalDown

__all__ = ["HEAD", "VERSION_TABLE", "is_current", "migrate"]

HEAD = "0006"
VERSION_TABLE = "journal_version"
_LOCK = 0x6F727361790001  # of PostgreSQL: servers that start together migrate one after the other


def is_current(connection: Connection) -> bool:
    """True if no migration is necessary. Raises JournalDown for a journal of a newer version."""
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
    """Create or change the tables, in the connection's transaction."""
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
