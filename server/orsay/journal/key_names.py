"""Names of API keys in a journal, and the journal's salt for them.

The salt is drawn when the tables are created: all servers on one journal, and copies of it, have the same.
"""

from __future__ import annotations

import asyncio

from sqlalchemy import Connection, select, update

from ..errors import JournalDown
from .schema import evaluations, facts, sessions
from .write.writer import Writer

__all__ = ["has_owner", "read_salt", "rename_owner", "salt_of"]

_AGAIN_S = 0.5


def read_salt(connection: Connection) -> bytes:
    """The salt of key names. Raises JournalDown if it was removed."""
    found = connection.execute(select(facts.c.value).where(facts.c.name == "salt")).scalar()
    if not found:
        raise JournalDown("the journal has no salt in its table 'facts'", "put it back from a copy")
    return bytes.fromhex(found)


async def salt_of(writer: Writer, *, wait_limit_s: float) -> bytes:
    """Wait for the salt of a journal that may be down. Raises JournalDown."""
    found = JournalDown("the journal takes too long to open", "check its disk or server")
    try:
        async with asyncio.timeout(wait_limit_s):
            while True:
                try:
                    return await writer.read(read_salt)
                except JournalDown as exc:
                    found = exc
                await asyncio.sleep(_AGAIN_S)
    except TimeoutError:
        raise found from None


def has_owner(connection: Connection, name: str) -> bool:
    """True if a session or evaluation belongs to that owner."""
    return any(
        connection.execute(select(table.c.id).where(table.c.owner == name).limit(1)).first() is not None
        for table in (sessions, evaluations)
    )


def rename_owner(connection: Connection, old: str, new: str) -> None:
    """Transfer the sessions and evaluations of one owner to another."""
    for table in (sessions, evaluations):
        connection.execute(update(table).where(table.c.owner == old).values(owner=new))
