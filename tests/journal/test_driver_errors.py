"""A journal that is full, locked, damaged or gone: it is loud, nobody waits for it, and it recovers."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from orsay.errors import JournalDown
from orsay.journal.ids import new_id
from orsay.journal.write.wal import Segment
from orsay.journal.write.writer import Writer, WriterLimits

from .rows import brought_up_to_date, called, ended, opened, put, query, until, writing

pytestmark = pytest.mark.process

Logged = list[dict[str, Any]]

_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
connection.close()
"""


@pytest.fixture
def logged() -> Iterator[Logged]:
    """What the journal logs meanwhile."""
    with structlog.testing.capture_logs() as found:
        yield found  # type: ignore[misc]  # structlog says MutableMapping


def message(logged: Logged, event: str) -> Logged:
    return [line for line in logged if line["event"] == event]


class Holder:
    """Another process that holds a SQLite file's write lock."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"held\n"

    def let_go(self) -> None:
        self._process.communicate(b"\n", timeout=60)


async def trouble(writer: Writer, session: int) -> None:
    """Have it noticed that the tables are locked, by rows that wait for that."""
    await put(writer, called(session))  # committed beside the tables
    await until(lambda: writer.health.state == "trouble")
    await put(writer, called(session))


async def test_a_locked_journal_recovers_and_loses_nothing(tmp_path: Path, logged: Logged) -> None:
    path = tmp_path / "journal.db"
    session = new_id()
    async with writing(path) as writer:
        await put(writer, opened(session), called(session, number=1))
        await brought_up_to_date(writer)
        holder = Holder(path)
        try:
            assert await put(writer, called(session, number=2)) == [True]  # beside the tables
            await until(lambda: writer.health.state == "trouble")
            assert await put(writer, called(session, number=3)) == [False]
            health = writer.health
            assert (health.state, health.waiting, health.lost) == ("trouble", 1, 0)
            assert "locked by another process" in health.reason
            assert health.since is not None and health.lag_s > 0
            began = time.monotonic()
            assert await put(writer, *(called(session, number=n) for n in range(4, 203))) == [False] * 199
            assert time.monotonic() - began < 30  # nobody waits, let alone each for itself
            assert await writer.read(lambda c: c.exec_driver_sql("SELECT count(*) FROM calls").scalar()) == 1
        finally:
            holder.let_go()
        await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
        assert await put(writer, called(session, number=203), ended(session)) == [True, True]
        assert (writer.health.committed, writer.health.lost, writer.health.lag_s) == (205, 0, 0.0)
    assert query(path, "SELECT count(*), sum(number) FROM calls") == [(203, sum(range(204)))]
    assert len(message(logged, "journal_trouble")) == 1
    assert message(logged, "journal_trouble")[0]["log_level"] == "error"
    assert message(logged, "journal_trouble")[0]["hint"]
    assert len(message(logged, "journal_recovered")) == 1


async def test_each_trouble_is_reported_once(tmp_path: Path, logged: Logged) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await put(writer, opened())
        for count in (1, 2):
            holder = Holder(path)
            try:
                await put(writer, called(1))
                await until(lambda: writer.health.state == "trouble")
                await put(writer, called(1), called(1))
            finally:
                holder.let_go()
            await until(lambda: writer.health.state == "ok")
            assert len(message(logged, "journal_trouble")) == count
            assert len(message(logged, "journal_recovered")) == count


async def test_a_row_waits_while_a_lock_is_short(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path, WriterLimits(wait_limit_s=60, stall_s=60)) as writer:
        await put(writer, opened())
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            waiting = asyncio.ensure_future(put(writer, called(1)))
            await asyncio.sleep(0.1)
            connection.execute("COMMIT")
            assert await waiting == [True]


async def test_what_does_not_fit_into_memory_is_given_up_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    limits = WriterLimits(wait_limit_s=0.2, stall_s=60, retry_s=0.1, tick_s=0.05, rows=50)
    early, late = new_id(), new_id()
    async with writing(path, limits) as writer:
        await put(writer, opened(early))
        holder = Holder(path)
        try:
            await trouble(writer, early)
            await put(writer, *(called(early) for _ in range(80)))
            await put(writer, opened(late), called(late), ended(early))
            assert writer.health.waiting == 51  # the end of a session always fits
            assert writer.health.lost == 33
        finally:
            holder.let_go()
        await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
        await until(lambda: _added(writer))
        assert await put(writer, called(late), ended(late)) == [
            False,
            False,
        ]  # of a session that is not there
        assert await put(writer, opened(late + 1)) == [True]
        assert writer.health.lost == 35
    assert query(path, "SELECT id, end_reason FROM sessions ORDER BY id") == [
        (early, "deleted"),
        (late + 1, None),
    ]
    assert query(path, "SELECT DISTINCT session FROM calls") == [(early,)]


def _added(writer: Writer) -> bool:
    """Whether rows are waited for again."""
    return writer.health.lag_s == 0.0


async def test_large_results_are_bounded_by_their_size(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    limits = WriterLimits(wait_limit_s=0.2, stall_s=60, retry_s=0.1, tick_s=0.05, size_bytes=1_000_000)
    async with writing(path, limits) as writer:
        await put(writer, opened(1))
        holder = Holder(path)
        try:
            await trouble(writer, 1)
            await put(writer, *(called(1, "x" * 100_000) for _ in range(20)))
            assert 10 <= writer.health.lost <= 17
        finally:
            holder.let_go()
        await until(lambda: writer.health.state == "ok")
    assert query(path, "SELECT count(*) FROM calls") == [(22 - writer.health.lost,)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for 4 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, timeout=60).returncode:
        pytest.skip("a small disk takes the right to mount one")
    try:
        yield folder
    finally:
        # Lazily: what a failed test still holds open must not keep the folder from ever being removed.
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=60)


async def test_a_full_disk_recovers_when_there_is_room(small_disk: Path, logged: Logged) -> None:
    path = small_disk / "journal.db"
    noise = [os.urandom(30_000).hex() for _ in range(10)]
    async with writing(path) as writer:
        assert await put(writer, opened(1), called(1)) == [True, True]
        (small_disk / "other").write_bytes(b"x" * 3_000_000)
        acknowledged = await put(writer, *(called(1, text) for text in noise))
        acknowledged += await put(writer, *(called(1, text) for text in noise))
        assert not all(acknowledged)
        await until(lambda: writer.health.state == "trouble")
        assert "no room" in writer.health.reason or "disk" in writer.health.reason
        (small_disk / "other").unlink()
        await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
        assert await put(writer, ended(1)) == [True]
        assert writer.health.lost == 0
    assert query(path, "SELECT count(*) FROM calls") == [(21,)]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    assert len(message(logged, "journal_trouble")) == len(message(logged, "journal_recovered")) == 1


async def test_small_rows_outlive_a_full_disk_too(small_disk: Path) -> None:
    path = small_disk / "journal.db"
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        assert await put(writer, opened(1)) == [True]
        await brought_up_to_date(writer)
        free = os.statvfs(small_disk)
        (small_disk / "other").write_bytes(b"x" * free.f_bavail * free.f_bsize)
        number = 0
        while writer.health.state == "ok":
            number += 1
            await put(writer, *(called(1, "x" * 1_000) for _ in range(10)))
        (small_disk / "other").unlink()
        await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
        assert await put(writer, ended(1)) == [True]
        assert writer.health.lost == 0
    assert query(path, "SELECT count(*) FROM calls") == [(10 * number,)]
    assert query(path, "SELECT end_reason FROM sessions") == [("deleted",)]


async def test_a_file_that_cannot_be_begun_leaves_nothing(small_disk: Path) -> None:
    free = os.statvfs(small_disk)
    (small_disk / "other").write_bytes(b"x" * free.f_bavail * free.f_bsize)
    held = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            Segment(small_disk / "journal.db")
    assert [each.name for each in small_disk.iterdir()] == ["other"]
    assert len(os.listdir("/proc/self/fd")) == held


async def test_an_end_in_the_same_turn_does_not_come_before_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        assert await put(writer, opened(1), ended(1, end_reason="x" * 10_000)) == [True, True]
    assert query(path, "SELECT length(end_reason) FROM sessions") == [(10_000,)]


@pytest.mark.parametrize("garbage", [b"no database, this is" * 1_000, b"\0" * 100_000])
async def test_a_file_that_is_no_journal_is_moved_aside(
    tmp_path: Path, garbage: bytes, logged: Logged
) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(garbage)
    async with writing(path) as writer:
        assert await put(writer, opened(1), called(1)) in ([True, True], [False, False])
        await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
        assert writer.health.lost == 0
    assert query(path, "SELECT count(*) FROM calls") == [(1,)]
    (aside,) = tmp_path.glob("journal.db.damaged-*")
    assert aside.read_bytes() == garbage
    assert aside.name in message(logged, "journal_trouble")[0]["hint"]


async def test_a_file_that_is_damaged_while_it_is_used_is_moved_aside(tmp_path: Path, logged: Logged) -> None:
    path = tmp_path / "journal.db"
    sessions = [new_id() for _ in range(400)]
    async with writing(path) as writer:
        await put(writer, *map(opened, sessions))
        for _ in range(10):
            await put(writer, *(called(session, "x" * 1_500) for session in sessions))
        await brought_up_to_date(writer)
        committed = writer.health.committed
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE sessions SET run = run")  # so that the writer reads its pages again
            connection.commit()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with path.open("r+b") as file:
            file.seek(200 * 4096)
            file.write(os.urandom(path.stat().st_size - 200 * 4096))
        for _ in range(30):
            await put(writer, *(called(session) for session in sessions))
            with suppress(JournalDown):
                await brought_up_to_date(writer)
            if message(logged, "journal_trouble"):
                break
        await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
        assert await put(writer, called(sessions[0])) == [False]  # the new one does not know that session
        assert await put(writer, opened(1), called(1)) == [True, True]
        health = writer.health
        assert health.lost > 0
        assert health.committed > committed
    assert query(path, "SELECT id FROM sessions") == [(1,)]
    assert query(path, "SELECT DISTINCT session FROM calls") == [(1,)]
    assert len(list(tmp_path.glob("journal.db.damaged-*"))) >= 1
    assert "damaged" in message(logged, "journal_trouble")[0]["reason"]


async def test_a_journal_that_is_deleted_under_the_server_is_noticed(tmp_path: Path, logged: Logged) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await put(writer, opened(1), called(1))
        for each in tmp_path.iterdir():
            each.unlink()
        number = 10
        while not message(logged, "journal_trouble"):
            number += 1
            await put(writer, opened(number))
            await asyncio.sleep(0.05)
        await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
        assert await put(writer, called(1), opened(2)) == [False, True]
        assert "removed" in message(logged, "journal_trouble")[0]["reason"]
    assert (2,) in query(path, "SELECT id FROM sessions")


async def test_a_journal_of_a_newer_version_is_left_alone(tmp_path: Path, logged: Logged) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await put(writer, opened(1))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE journal_version SET version_num='9999'")
        connection.commit()
    async with writing(path) as writer:
        assert await put(writer, opened(2)) == [False]
        assert writer.health.state == "trouble"
        assert "newer version" in writer.health.reason
        with pytest.raises(JournalDown, match="upgrade Orsay"):
            await writer.read(lambda connection: None)
    assert writer.health.lost == 1
    assert query(path, "SELECT id FROM sessions") == [(1,)]
    assert query(path, "SELECT version_num FROM journal_version") == [("9999",)]
    assert len(message(logged, "journal_rows_lost")) == 1


async def test_a_folder_that_cannot_be_made_is_trouble_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    async with writing(tmp_path / "file" / "journal.db") as writer:
        assert await put(writer, opened(1)) == [False]
        assert writer.health.state == "trouble"
        assert str(tmp_path / "file") in writer.health.reason
        (tmp_path / "file").unlink()
        await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
    assert query(tmp_path / "file" / "journal.db", "SELECT id FROM sessions") == [(1,)]


async def test_closing_in_trouble_takes_a_moment_and_counts_what_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await put(writer, opened(1))
        holder = Holder(path)
        try:
            await put(writer, called(1))  # beside the tables, where it stays
            await until(lambda: writer.health.state == "trouble")
            acknowledged = [asyncio.get_running_loop().create_future() for _ in range(3)]
            for future in acknowledged:
                writer.add(called(1), future.set_result)
            async with asyncio.timeout(60):
                await writer.close()
            assert [await future for future in acknowledged] == [False] * 3
            assert (writer.health.lost, writer.health.waiting) == (3, 0)
        finally:
            holder.let_go()
    async with writing(path) as writer:
        assert await writer.read(lambda c: c.exec_driver_sql("SELECT count(*) FROM calls").scalar()) == 1


async def test_a_journal_that_was_never_open_closes_at_once_when_no_row_waits(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    limits = WriterLimits(retry_s=60, tick_s=0.05, close_s=60)
    async with writing(tmp_path / "file" / "journal.db", limits) as writer:
        await until(lambda: writer.health.state == "trouble")
        async with asyncio.timeout(30):
            await writer.close()
        assert writer.health.lost == 0


async def test_the_end_of_a_trouble_during_close_still_saves_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    limits = WriterLimits(wait_limit_s=0.2, stall_s=60, retry_s=0.1, tick_s=0.05, close_s=60)
    async with writing(path, limits) as writer:
        await put(writer, opened(1))
        holder = Holder(path)
        try:
            await put(writer, called(1))
            closing_now = asyncio.ensure_future(writer.close())
            await asyncio.sleep(0.2)
        finally:
            holder.let_go()
        await asyncio.wait_for(closing_now, 60)
        assert writer.health.lost == 0
    assert query(path, "SELECT count(*) FROM calls") == [(1,)]
