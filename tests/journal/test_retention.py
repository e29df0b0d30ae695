"""The journal stays within its bounds, and nobody who plays is held up or loses anything for it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from orsay.journal.database import Store
from orsay.journal.ids import new_id
from orsay.journal.write.retention import (
    PAGES_AT_ONCE,
    free_pages,
    give_back,
    remove,
    size_bytes,
    steps,
    to_remove,
)
from orsay.journal.write.writer import Writer, WriterLimits

from .postgres import Postgres
from .rows import called, ended, opened, options, prompted, put, query, writing

DAY_S = 86_400.0
OFTEN = WriterLimits(retention_s=0.05, tick_s=0.05, stall_s=60)
NEVER = WriterLimits(retention_s=3_600)
TABLES = ("calls", "prompts", "scores", "large_values")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.database)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


async def _play(writer: Writer, session: int, *, age_days: float = 0, end: bool = True, size: int = 3) -> int:
    """One session, so old."""
    when = time.time() - age_days * DAY_S
    scores = called(session, kind="score_group", result=b'{"scores":[{"reward":1.0}]}', started_at=when)
    large = called(session, os.urandom(size * 500).hex(), started_at=when)
    rows: list[Any] = [opened(session, started_at=when), prompted(session), scores, large]
    assert all(await put(writer, *rows, *([ended(session, ended_at=when)] if end else [])))
    return session


async def _left(writer: Writer) -> list[int]:
    found = await writer.read(lambda c: c.exec_driver_sql("SELECT id FROM sessions ORDER BY id").fetchall())
    return [id for (id,) in found]


async def _orphans(writer: Writer) -> int:
    """Rows that belong to no session."""
    query = " UNION ALL ".join(
        f"SELECT session FROM {table} WHERE session NOT IN (SELECT id FROM sessions)" for table in TABLES
    )
    return len(await writer.read(lambda c: c.exec_driver_sql(query).fetchall()))


async def test_old_sessions_go_with_all_that_is_theirs(place: str) -> None:
    async with writing(place, OFTEN, max_age_days=10) as writer:
        old = [await _play(writer, new_id(), age_days=11) for _ in range(25)]
        young = [await _play(writer, new_id(), age_days=9) for _ in range(5)]
        while set(await _left(writer)) & set(old):
            await asyncio.sleep(0.02)
        assert await _left(writer) == young
        assert await _orphans(writer) == 0


async def test_beyond_a_number_the_oldest_go(place: str) -> None:
    async with writing(place, OFTEN, max_sessions=7) as writer:
        played = [await _play(writer, new_id()) for _ in range(40)]
        while len(await _left(writer)) > 7:
            await asyncio.sleep(0.02)
        assert await _left(writer) == played[-7:]
        assert await _orphans(writer) == 0


async def test_beyond_a_size_the_oldest_go(tmp_path: Path) -> None:
    bound = 1_500_000
    async with writing(tmp_path / "journal.db", OFTEN, max_bytes=bound) as writer:
        played = [await _play(writer, new_id(), size=100) for _ in range(60)]
        while await writer.read(size_bytes) > bound:
            await asyncio.sleep(0.02)
        left = await _left(writer)
        assert 5 < len(left) < 50
        assert left == played[-len(left) :]


async def test_the_file_does_not_grow_past_its_bound_while_play_goes_on(tmp_path: Path) -> None:
    path, bound = tmp_path / "journal.db", 3_000_000
    async with writing(path, OFTEN, max_bytes=bound) as writer:
        largest = 0
        for _ in range(200):
            await _play(writer, new_id(), size=60)
            largest = max(largest, await writer.read(size_bytes))
            if largest > 2 * bound:  # give it the time that a busy machine takes
                while await writer.read(size_bytes) > bound:
                    await asyncio.sleep(0.02)
        while await writer.read(size_bytes) > bound:
            await asyncio.sleep(0.02)
        assert writer.health.lost == 0
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size < 4 * bound
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_file_that_lost_most_of_its_rows_becomes_smaller(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path, NEVER) as writer:
        for _ in range(40):
            await _play(writer, new_id(), size=200)
    before = path.stat().st_size
    async with writing(path, OFTEN, max_sessions=4) as writer:
        while await writer.read(free_pages) >= PAGES_AT_ONCE or len(await _left(writer)) > 4:
            await asyncio.sleep(0.02)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.stat().st_size < before / 2


async def test_sessions_that_live_are_never_removed(place: str) -> None:
    async with writing(place, OFTEN, max_sessions=2, max_age_days=1) as writer:
        alive = [await _play(writer, new_id(), age_days=5, end=False) for _ in range(5)]
        played = [await _play(writer, new_id()) for _ in range(5)]
        while set(await _left(writer)) & set(played):  # five too many live: all that ended go
            await asyncio.sleep(0.02)
        assert await _left(writer) == alive
        assert all(await put(writer, called(alive[0]), ended(alive[0], ended_at=time.time() - 2 * DAY_S)))
        while alive[0] in await _left(writer):
            await asyncio.sleep(0.02)


async def test_sessions_of_servers_that_died_go_when_they_were_silent_for_long(place: str) -> None:
    store = Store(options(place, max_age_days=1))
    async with writing(place, NEVER) as writer:
        silent = await _play(writer, new_id(), age_days=40, end=False)
        busy = await _play(writer, new_id(), age_days=40, end=False)
        await put(writer, called(busy))
        recent = await _play(writer, new_id(), age_days=20, end=False)
        found = await writer.read(lambda c: to_remove(c, store.options, time.time()))
    assert found == [silent]
    assert {busy, recent}.isdisjoint(found)


async def test_without_bounds_nothing_is_removed(place: str) -> None:
    async with writing(place, NEVER) as writer:
        await _play(writer, new_id(), age_days=4_000)
        assert await writer.read(lambda c: to_remove(c, writer.options, time.time())) == []


async def test_rows_are_written_while_old_ones_go(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path, NEVER) as writer:
        for _ in range(300):
            await _play(writer, new_id(), age_days=5)
    async with writing(path, OFTEN, max_age_days=1) as writer:
        session = new_id()
        await put(writer, opened(session))
        number = 0
        while len(await _left(writer)) > 1:
            number += 1
            assert await put(writer, called(session, number=number)) == [True]
        assert writer.health.state == "ok"
    assert query(path, "SELECT max(number), count(*) FROM calls") == [(number, number)]


async def test_the_size_of_a_postgres_journal_is_that_of_its_rows(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with writing(url, NEVER, max_bytes=1_000_000) as writer:
        played = [await _play(writer, new_id(), size=100) for _ in range(60)]
        postgres.execute(_name(url), "ANALYZE")
        full = await writer.read(size_bytes)
        assert 2_500_000 < full < 12_000_000
        found = await writer.read(lambda c: to_remove(c, writer.options, time.time()))
        assert 20 < len(found) < 60
        assert found == played[: len(found)]
    store = Store(options(url))
    store.open()
    for part in steps(found):
        with store.writing() as connection:
            remove(connection, part)
    postgres.execute(_name(url), "VACUUM ANALYZE")
    with store.reading() as connection:
        assert size_bytes(connection) < full * 0.6  # though its files are as large as before
    store.close()


def _name(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


def test_sessions_go_in_small_steps() -> None:
    assert [list(part) for part in steps(list(range(23)))] == [
        list(range(10)),
        list(range(10, 20)),
        [20, 21, 22],
    ]


def test_pages_are_given_back_in_small_steps(tmp_path: Path) -> None:
    store = Store(options(tmp_path / "journal.db"))
    store.open()
    with store.writing() as connection:
        connection.exec_driver_sql("INSERT INTO large_values VALUES (1, 'x', 1, zeroblob(4000000))")
    with store.writing() as connection:
        remove(connection, [1])
    with store.reading() as connection:
        many = free_pages(connection)
    with store.writing() as connection:
        give_back(connection)
    with store.reading() as connection:
        assert 0 < free_pages(connection) < many - 100
    store.close()
