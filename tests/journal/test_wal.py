"""What is committed beside the tables of a SQLite journal comes into them, whatever becomes of its writer."""

from __future__ import annotations

import asyncio
import marshal
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import structlog
from orsay.journal.database import Store
from orsay.journal.ids import new_id
from orsay.journal.write.run_delay import RunDelay
from orsay.journal.write.wal import Segment
from orsay_protocol.redact import Redactor

from .rows import (
    BOUND_S,
    brought_up_to_date,
    called,
    ended,
    opened,
    options,
    put,
    query,
    started,
    until,
    writing,
)

pytestmark = pytest.mark.process

_ROOT = Path(__file__).parents[2]
_WRITE = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.journal.rows import brought_up_to_date, called, opened, put, writing

async def main():
    async with writing(Path(sys.argv[1])) as writer:
        await brought_up_to_date(writer)
        await put(writer, opened(1))
        for number in range(1, 1 + int(sys.argv[2])):
            assert await put(writer, called(1, number=number)) == [True]
            print(number, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def left(path: Path) -> list[Path]:
    return list(path.parent.glob(f"{path.name}-recent-*"))


def open_and_close(path: Path) -> None:
    """As any reader does."""
    store = Store(options(path))
    store.open()
    store.close()


@pytest.fixture
def without_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows stay beside the tables until something else takes them there."""
    monkeypatch.setattr("orsay.journal.write.writer.AGE_S", 3600.0)


@pytest.mark.parametrize("calls", [1, 40, 4_500])
def test_what_a_killed_writer_had_committed_is_there_for_the_next(tmp_path: Path, calls: int) -> None:
    path = tmp_path / "journal.db"
    command = [sys.executable, "-c", _WRITE, str(path), str(calls)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1] == str(calls).encode(), done.stderr
    assert len(left(path)) >= 1
    open_and_close(path)
    numbers = query(path, "SELECT number FROM calls ORDER BY number")
    assert numbers == [(number,) for number in range(1, calls + 1)]
    assert query(path, "SELECT id FROM sessions") == [(1,)]
    assert left(path) == []


async def test_a_writer_takes_over_what_one_before_it_left(tmp_path: Path, without_haste: None) -> None:
    path = tmp_path / "journal.db"
    copy = tmp_path / "copy"
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        await put(writer, opened(1), called(1))
        shutil.copy(left(path)[0], copy)
    path.unlink()
    copy.rename(tmp_path / "journal.db-recent-0000abcd")
    async with writing(path) as writer:
        assert await writer.read(lambda c: c.exec_driver_sql("SELECT session FROM calls").scalar()) == 1


async def test_what_is_taken_over_twice_is_there_once_and_nothing_newer_is_lost(
    tmp_path: Path, without_haste: None
) -> None:
    path = tmp_path / "journal.db"
    copy = tmp_path / "journal.db-recent-0000abcd"
    begun = started(1)
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        await put(writer, opened(1), begun)
        await put(writer, called(1, number=2))
        shutil.copy(left(path)[0], tmp_path / "copy")
        await put(writer, called(1, id=begun.id, number=1), ended(1))
    before = query(path, "SELECT * FROM calls"), query(path, "SELECT * FROM sessions")
    (tmp_path / "copy").rename(copy)
    open_and_close(path)
    assert (query(path, "SELECT * FROM calls"), query(path, "SELECT * FROM sessions")) == before
    assert query(path, "SELECT number FROM calls ORDER BY number") == [(1,), (2,)]
    assert not copy.exists()


async def test_a_write_that_was_cut_off_takes_nothing_along(tmp_path: Path, without_haste: None) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        await put(writer, opened(1))
        await put(writer, called(1, number=1))
        await put(writer, called(1, number=2))
        whole = left(path)[0].read_bytes()
    path.unlink()
    (tmp_path / "journal.db-recent-0000abcd").write_bytes(whole[:-3])
    (tmp_path / "journal.db-recent-0000abce").write_bytes(whole[:5])
    (tmp_path / "journal.db-recent-0000abcf").write_bytes(b"")
    open_and_close(path)
    assert query(path, "SELECT number FROM calls") == [(1,)]
    assert left(path) == []


async def test_the_file_of_a_living_writer_is_left_alone(tmp_path: Path, without_haste: None) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        await put(writer, opened(1), called(1))
        (file,) = left(path)
        open_and_close(path)
        assert left(path) == [file]
        assert query(path, "SELECT id FROM calls") == []
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert left(path) == []
    assert query(path, "SELECT session FROM calls") == [(1,)]


async def test_two_writers_of_one_journal_have_a_file_each(tmp_path: Path, without_haste: None) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as one, writing(path) as other:
        await asyncio.gather(brought_up_to_date(one), brought_up_to_date(other))
        for number in range(20):
            await asyncio.gather(put(one, called(1, number=number)), put(other, called(2, number=number)))
        assert len(left(path)) == 2
    assert query(path, "SELECT session, count(*) FROM calls GROUP BY session ORDER BY session") == [
        (1, 20),
        (2, 20),
    ]


async def test_large_rows_go_into_the_tables_at_once_and_an_end_not_before_its_beginning(
    tmp_path: Path, without_haste: None
) -> None:
    path = tmp_path / "journal.db"
    noise = "".join(f"{number:x}" for number in range(3_000))
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        await put(writer, opened(1), called(1, number=1))
        await put(writer, called(1, noise, number=2))
        assert query(path, "SELECT number FROM calls ORDER BY number") == [(2,)]
        await put(writer, called(1, noise, number=3), ended(1, end_reason=noise))
        assert query(path, "SELECT number FROM calls ORDER BY number") == [(1,), (2,), (3,)]
    assert query(path, "SELECT end_reason FROM sessions") == [(noise,)]


async def test_the_file_stays_small(tmp_path: Path, without_haste: None) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        for _ in range(90):
            await put(writer, *(called(1) for _ in range(100)))
        assert left(path)[0].stat().st_size < 2_200 * 500
        await until(lambda: query(path, "SELECT count(*) FROM calls")[0][0] >= 1_000)


class SlowAppends:
    """Each append takes 60 ms; ``by_the_disk``, the thread has no run delay in them, and else always."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, by_the_disk: bool) -> None:
        self._of_the_disk_s = 0.0
        append = Segment.append

        def slowly(segment: Segment, data: bytes, rows: int) -> None:
            began = time.monotonic()
            time.sleep(0.06)
            if by_the_disk:
                self._of_the_disk_s += time.monotonic() - began
            append(segment, data, rows)

        monkeypatch.setattr(Segment, "append", slowly)
        monkeypatch.setattr(RunDelay, "total_s", lambda _: time.monotonic() - self._of_the_disk_s)


async def test_where_the_disk_is_slow_rows_go_into_the_tables_at_once(
    tmp_path: Path, without_haste: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    SlowAppends(monkeypatch, by_the_disk=True)
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        assert await put(writer, opened(1)) == [True]
        assert query(path, "SELECT id FROM sessions") == []
        assert await put(writer, called(1, number=1)) == [True]
        assert query(path, "SELECT number FROM calls") == [(1,)]
    assert query(path, "SELECT id FROM sessions") == [(1,)]


async def test_where_the_machine_is_busy_and_not_the_disk_rows_still_go_to_the_log(
    tmp_path: Path, without_haste: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    SlowAppends(monkeypatch, by_the_disk=False)
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        assert await put(writer, opened(1)) == [True]
        assert await put(writer, called(1, number=1)) == [True]
        assert query(path, "SELECT number FROM calls") == []
    assert query(path, "SELECT number FROM calls") == [(1,)]


async def test_what_callers_do_when_their_rows_are_durable_is_no_slow_disk(
    tmp_path: Path, without_haste: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunDelay, "total_s", lambda _: 0.0)
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        writer.add(opened(1), lambda _: time.sleep(0.06))
        await asyncio.sleep(0)
        assert await put(writer, called(1, number=1)) == [True]
        assert query(path, "SELECT number FROM calls") == []


def _counts_run_delay() -> bool:
    try:
        return Path("/proc/thread-self/schedstat").read_text().split() != ["0", "0", "0"]
    except OSError:
        return False


@pytest.mark.skipif(not _counts_run_delay(), reason="this system does not count run delay")
def test_a_thread_that_shares_its_core_has_run_delay_and_one_that_sleeps_has_none() -> None:
    core = min(os.sched_getaffinity(0))
    busy = f"""
import os, time
os.sched_setaffinity(0, {{{core}}})
print(flush=True)
until = time.monotonic() + 60
while time.monotonic() < until: pass
"""

    def spins() -> float:
        os.sched_setaffinity(threading.get_native_id(), {core})
        run_delay = RunDelay()
        before, until = run_delay.total_s(), time.thread_time() + 0.3
        while time.thread_time() < until:
            pass
        delay_s = run_delay.total_s() - before
        run_delay.close()
        return delay_s

    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(spins).result() > 0.1
        finally:
            other.kill()
    run_delay = RunDelay()
    began, before = time.monotonic(), run_delay.total_s()
    time.sleep(0.1)
    assert run_delay.total_s() - before < time.monotonic() - began - 0.09
    run_delay.close()
    assert run_delay.total_s() == 0.0


def test_where_run_delay_is_not_counted_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", missing)
    run_delay = RunDelay()
    assert run_delay.total_s() == 0.0
    run_delay.close()


async def test_a_row_that_comes_alone_is_committed_at_once_and_others_by_turns_of_the_loop(
    tmp_path: Path, without_haste: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    append = Segment.append

    def counted(segment: Segment, data: bytes, rows: int) -> None:
        append(segment, data, rows)
        if rows:
            sizes.append(rows)

    monkeypatch.setattr(Segment, "append", counted)
    monkeypatch.setattr("orsay.journal.write.writer._MOST_SINGLES", 2)
    acknowledged: list[bool] = []

    async def in_one_turn(rows: int) -> None:
        for _ in range(rows):
            writer.add(called(1), acknowledged.append)
        await asyncio.sleep(0)

    async with writing(tmp_path / "journal.db") as writer:
        await brought_up_to_date(writer)
        for rows in (10, 1, 1):
            await in_one_turn(rows)
        writer.add(called(1), acknowledged.append)
        assert (sizes, acknowledged) == ([10, 1, 1, 1], [True] * 13)  # before anything else had its turn
        monkeypatch.setattr("orsay.journal.write.writer._RUSH_S", BOUND_S)
        await asyncio.sleep(0.01)
        for rows in (11, 10):  # the first of a rush comes alone, as far as anybody knows
            await in_one_turn(rows)
        assert (sizes, acknowledged) == ([10, 1, 1, 1, 1, 10, 10], [True] * 34)


async def test_with_fsync_no_row_is_kept_beside_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path, durability="fsync") as writer:
        await brought_up_to_date(writer)
        assert await put(writer, opened(1), called(1)) == [True, True]
        assert query(path, "SELECT session FROM calls") == [(1,)]
        assert left(path) == []


async def test_secrets_are_not_in_it(tmp_path: Path, without_haste: None) -> None:
    path = tmp_path / "journal.db"
    hide = Redactor(("very-secret-value",))
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        await put(writer, opened(1, hide=hide), called(1, "the very-secret-value, known", hide=hide))
        written = left(path)[0].read_bytes()
        assert b"[secret], known" in written
        assert b"very-secret-value" not in written


def test_the_rest_of_another_version_is_kept_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.db"
    open_and_close(path)
    with monkeypatch.context() as patched:
        patched.setattr("orsay.journal.write.wal._FORM", marshal.dumps((2, ["id", "session"])))
        segment = Segment(path)
        (file,) = left(path)
        kept = file.read_bytes()
        segment.close()
    file = path.with_name("journal.db-recent-0000abcd")
    file.write_bytes(kept)
    with structlog.testing.capture_logs() as logged:
        open_and_close(path)
    assert [line["event"] for line in logged] == ["journal_wal_not_read"]
    assert file.read_bytes() == kept


async def test_rows_that_a_database_refuses_do_not_keep_others_out(
    tmp_path: Path, without_haste: None
) -> None:
    path = tmp_path / "journal.db"
    session = new_id()
    async with writing(path) as writer:
        await brought_up_to_date(writer)
        await put(writer, opened(session), called(session, number=2**70), called(session, number=1))
        await writer.read(lambda connection: None)
        assert query(path, "SELECT number FROM calls") == [(1,)]
        await until(lambda: writer.health.lost == 1)
        assert (writer.health.state, writer.health.committed) == ("ok", 2)
