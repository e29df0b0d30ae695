"""Synthetic journal for timing the console's pages, with some special sessions."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orsay.auth import Keys
from orsay.journal.database import Store
from orsay.journal.key_names import read_salt
from orsay.journal.options import JournalOptions, journal_url
from orsay.journal.schema import calls, metadata, sessions
from orsay.journal.search.query import catch_up
from pydantic import SecretStr
from sqlalchemy import Connection, delete, func, insert, select, text, update

from .serve import say

__all__ = ["API_KEYS", "Recorded", "make_journal"]

ROOT = Path(__file__).parents[2]
API_KEYS = ("key-of-one", "key-of-two", "key-of-three")
_CALLS = 19  # of a session at most, ten on average
_LONG = 500  # calls of one session
_INDEX_LIMIT_S = 240.0


@dataclass(frozen=True, slots=True)
class Recorded:
    """Content of the journal, by ids; ``owner`` is the name of the first key."""

    sessions: int
    calls: int
    middle: str
    long: str
    same_task: tuple[str, str]
    environment: str
    task: str
    run: str
    other_run: str
    unlabelled: str
    first_at: float
    indexed_s: float
    unindexed: int


def make_journal(place: str, count: int) -> Recorded:
    """Fill an empty journal, and its index for text."""
    sys.path.insert(0, str(ROOT))  # the synthetic sessions are those of the tests
    from tests.journal.fill import Fill, fill

    store = Store(JournalOptions(journal_url(place)))
    store.open()
    try:
        what = Fill(
            sessions=count,
            runs=[f"run-{n}" for n in range(40)],
            steps=100,
            tasks=250,
            open=min(200, count // 10),
            calls=_CALLS,
            owners=_owners(store),
        )
        began = time.perf_counter()
        with store.writing() as connection:
            fill(connection, what)
            long = _make_long(connection, what.owners[0])
        say(f"  {count} sessions made in {time.perf_counter() - began:.0f} s")
        _settle(store)
        left, indexed_s = _index(store)
        _settle(store)
        with store.reading() as connection:
            return _look(connection, what.owners[0], long, indexed_s, left)
    finally:
        store.close()


def _owners(store: Store) -> list[str]:
    """The names of the keys in that journal."""
    with store.reading() as connection:
        keys = Keys([SecretStr(key) for key in API_KEYS], read_salt(connection))
    return [keys.owner({b"x-api-key": key.encode()}) for key in API_KEYS]


def _make_long(connection: Connection, owner: str) -> int:
    """Give one session that ended, of the first key, many calls."""
    session = connection.execute(
        select(sessions).where(sessions.c.owner == owner, sessions.c.fault.is_(None))
        .where(sessions.c.ended_at.is_not(None)).order_by(sessions.c.id.desc()).limit(1)
    ).one()  # fmt: skip
    one = connection.execute(
        select(calls).where(calls.c.session == session.id, calls.c.result.is_not(None)).limit(1)
    ).one()
    connection.execute(delete(calls).where(calls.c.session == session.id))
    rows = [
        {**one._mapping, "id": session.id + number, "number": number, "task_id": f"{number:032x}"}
        for number in range(1, _LONG + 1)
    ]
    connection.execute(insert(calls), rows)
    connection.execute(update(sessions).where(sessions.c.id == session.id).values(calls=_LONG))
    found: int = session.id
    return found


def _settle(store: Store) -> None:
    """Bring the database to the state that PostgreSQL reaches by itself after a minute, and a growing journal
    always has.
    """
    if store.is_sqlite:
        with store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


def _index(store: Store) -> tuple[int, float]:
    """Number of sessions left unindexed, and the seconds that it took."""
    began = time.perf_counter()
    while True:
        with store.reading() as connection:
            left = catch_up(connection, 10)
        spent = time.perf_counter() - began
        if left == 0 or spent > _INDEX_LIMIT_S:
            return left, spent
        say(f"  {left} sessions to index")


def _look(connection: Connection, owner: str, long: int, indexed_s: float, left: int) -> Recorded:
    first, count = connection.execute(
        select(func.min(sessions.c.id), func.count()).select_from(sessions)
    ).one()
    ended = select(sessions).where(sessions.c.ended_at.is_not(None), sessions.c.labelled)
    mine = ended.where(sessions.c.owner == owner).order_by(sessions.c.id)
    middle = connection.execute(mine.offset(count // 8).limit(1)).one()
    same = _of_one_task(connection, middle)
    runs = list(connection.scalars(select(sessions.c.run).where(sessions.c.labelled).distinct().limit(2)))
    return Recorded(
        sessions=count,
        calls=connection.scalar(select(func.count()).select_from(metadata.tables["calls"])) or 0,
        middle=str(middle.id),
        long=str(long),
        same_task=same,
        environment=middle.environment,
        task=middle.task,
        run=middle.run,
        other_run=next(run for run in [*runs, middle.run] if run != middle.run or len(runs) == 1),
        unlabelled=connection.scalar(select(sessions.c.run).where(~sessions.c.labelled).limit(1)) or "",
        first_at=connection.scalar(select(sessions.c.started_at).where(sessions.c.id == first)) or 0.0,
        indexed_s=indexed_s,
        unindexed=left,
    )


def _of_one_task(connection: Connection, one: Any) -> tuple[str, str]:
    found: Sequence[int] = connection.scalars(
        select(sessions.c.id)
        .where(sessions.c.environment == one.environment, sessions.c.task == one.task)
        .where(sessions.c.owner == one.owner)
        .order_by(sessions.c.id.desc())
        .limit(2)
    ).all()
    return str(found[0]), str(found[-1])
