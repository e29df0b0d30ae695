"""The journal in PostgreSQL: written by several servers at once, and waited for when it is away."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from orsay.errors import JournalDown
from orsay.journal.ids import new_id
from orsay.journal.read.query import Filter, trajectories
from orsay.journal.records import EvaluationSaved
from orsay.journal.values import unpack
from orsay.journal.write.writer import WriterLimits
from sqlalchemy import Connection, text

from .postgres import PASSWORD, Postgres
from .rows import called, dump, ended, opened, prompted, put, started, until, writing

pytestmark = pytest.mark.process

_WRITE = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from journal.rows import called, ended, opened, put, writing
from orsay.journal.ids import new_id

async def main():
    async with writing({url!r}) as writer:
        for _ in range(20):
            session = new_id()
            calls = [called(session, number=n) for n in range(1, 26)]
            told = await put(writer, opened(session), *calls, ended(session))
            assert all(told), writer.health

asyncio.run(main())
"""


def _query(server: Postgres, url: str, statement: str) -> list[tuple[Any, ...]]:
    return server.execute(url.partition("@/")[2].partition("?")[0], statement)


async def test_each_question_of_a_reader_is_planned_for_what_it_asks(postgres: Postgres) -> None:
    def ask(connection: Connection) -> int:
        for fault in ["worker_lost", "time_limit"] * 10:
            trajectories(connection, Filter(fault=fault))
        return int(connection.execute(text("SELECT count(*) FROM pg_prepared_statements")).scalar_one())

    async with writing(postgres.new_database()) as writer:
        assert await writer.read(ask) == 0


async def test_everything_is_in_the_tables(postgres: Postgres) -> None:
    url = postgres.new_database()
    session = new_id()
    call = called(session, "naïve ☃ \\u0000", stream_s=1.5)
    large = called(session, "x" * 5_000, number=2)
    scores = dump({"scores": [{"reward": 1, "metadata": {"why": "best"}}]})
    scored = called(session, kind="score_group", body=dump({"candidates": [{}]}), result=scores, number=3)
    evaluation = EvaluationSaved(
        new_id(), "e", "r", "", "echo", None, "m", 1.0, None, '{"mean":0}', b'{"n":0}'
    )
    async with writing(url) as writer:
        assert all(await put(writer, opened(session), prompted(session), call, large, scored, evaluation))
        assert all(await put(writer, evaluation._replace(report=b'{"n":9}'), ended(session)))
    assert _query(
        postgres, url, "SELECT id, task_index, labelled, secrets, finished, reward FROM sessions"
    ) == [(session, 3, True, False, True, 0.5)]
    found = _query(
        postgres, url, "SELECT id, session, number, input, result, reward, run_s, stream_s, fault FROM calls"
    )
    assert found[0] == (
        call.id, session, 1, '{"text":"naïve ☃ \\\\u0000"}', call.wire.decode()[18:-4], 0.5, 0.002, 1.5, None,
    )  # fmt: skip
    assert found[1][3:5] == (None, None)
    values = _query(postgres, url, f"SELECT field, data FROM large_values WHERE row={large.id}")
    assert json.loads(unpack(dict(values)["input"])) == {"text": "x" * 5_000}
    assert _query(postgres, url, "SELECT candidate, reward, detail FROM scores") == [
        (0, 1.0, '{"metadata":{"why":"best"}}')
    ]
    ((report,),) = _query(postgres, url, "SELECT report FROM evaluations")
    assert isinstance(report, bytes) and unpack(report) == '{"n":9}'
    assert _query(postgres, url, "SELECT text FROM prompts") == [('[{"type":"text","text":"Say it."}]',)]


async def test_times_and_rewards_come_back_to_the_last_bit(postgres: Postgres) -> None:
    url = postgres.new_database()
    numbers = [0.1 + 0.2, 1e-300, -1.7976931348623157e308, 1_732_222_222.123457]
    async with writing(url) as writer:
        await put(writer, *(called(1, number=n, reward=x, started_at=x) for n, x in enumerate(numbers)))
    assert _query(postgres, url, "SELECT reward, started_at FROM calls ORDER BY number") == [
        (x, x) for x in numbers
    ]


async def test_a_call_that_begins_and_ends_in_one_group_is_one_row(postgres: Postgres) -> None:
    url = postgres.new_database()
    begun = started(1)
    async with writing(url) as writer:
        assert all(await put(writer, begun, called(1, id=begun.id), opened(2), ended(2), opened(2)))
    assert _query(postgres, url, "SELECT id, number FROM calls") == [(begun.id, 1)]
    assert _query(postgres, url, "SELECT id, end_reason FROM sessions") == [(2, "deleted")]


async def test_what_postgres_does_not_take_is_put_right_or_given_up_alone(postgres: Postgres) -> None:
    url = postgres.new_database()
    odd = called(1, name="half \ud83d zero \0")
    async with writing(url) as writer:
        assert await put(writer, called(1), odd, called(2**70), called(1)) == [True, True, False, True]
        assert (writer.health.state, writer.health.lost) == ("ok", 1)
    assert _query(postgres, url, "SELECT count(*) FROM calls") == [(3,)]


async def test_a_report_with_a_zero_stops_nothing_that_comes_after_it(postgres: Postgres) -> None:
    """Psycopg itself refuses such a text, with an error that has no code."""
    url = postgres.new_database()
    report = EvaluationSaved(1, "zero \0", "r", "", "echo", None, "m", 1.0, None, "{}", b"{}")
    async with writing(url) as writer:
        assert await put(writer, report, called(1)) == [True, True]
        assert (writer.health.state, writer.health.lost) == ("ok", 0)
    assert _query(postgres, url, "SELECT name FROM evaluations") == [("zero \ufffd",)]


def test_several_servers_write_into_one_journal_at_once(postgres: Postgres) -> None:
    url = postgres.new_database()  # empty: all of them want to make the tables
    code = _WRITE.format(url=url, tests=str(Path(__file__).parents[1]))
    servers = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", code], stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for server in servers:
        _, output = server.communicate(timeout=100)
        assert server.returncode == 0, output.decode()
    assert _query(postgres, url, "SELECT count(*), count(ended_at) FROM sessions") == [(80, 80)]
    assert _query(postgres, url, "SELECT count(*), sum(number) FROM calls") == [
        (2_000, 80 * sum(range(1, 26)))
    ]


async def test_a_server_that_went_away_and_came_back_has_everything(postgres: Postgres) -> None:
    url = postgres.new_database()
    session = new_id()
    with structlog.testing.capture_logs() as logged:
        async with writing(url) as writer:
            await put(writer, opened(session), called(session, number=1))
            postgres.stop()
            try:
                assert await put(writer, *(called(session, number=n) for n in range(2, 102))) == [False] * 100
                assert writer.health.state == "trouble"
                with pytest.raises(JournalDown) as refused:
                    await writer.read(lambda connection: None)
                shown = f"{refused.value} {writer.health} {logged}"
                assert PASSWORD not in shown and "s3cret" not in shown
                assert "whether the database server runs" in writer.health.hint
            finally:
                postgres.start()
            await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
            assert await put(writer, called(session, number=102), ended(session)) == [True, True]
            assert (writer.health.committed, writer.health.lost) == (104, 0)
            assert (
                await writer.read(lambda c: c.exec_driver_sql("SELECT count(*) FROM calls").scalar()) == 102
            )
    assert _query(postgres, url, "SELECT count(*), sum(number) FROM calls") == [(102, sum(range(103)))]
    assert [line["event"] for line in logged if line["module"] == "journal"] == [
        "journal_trouble",
        "journal_recovered",
    ]


async def test_a_restart_between_two_calls_is_no_trouble(postgres: Postgres) -> None:
    url = postgres.new_database()
    with structlog.testing.capture_logs() as logged:
        async with writing(url) as writer:
            await put(writer, opened(1))
            await writer.read(lambda connection: None)
            postgres.stop()
            postgres.start()
            assert await put(writer, called(1)) == [True]
            assert await writer.read(lambda c: c.exec_driver_sql("SELECT count(*) FROM calls").scalar()) == 1
    assert not logged


async def test_with_fsync_a_crash_of_the_database_loses_nothing_that_was_committed(
    postgres: Postgres,
) -> None:
    url = postgres.new_database()
    async with writing(url, durability="fsync") as writer:
        for number in range(1, 21):
            assert await put(writer, called(1, number=number)) == [True]
        postgres.stop(signal.SIGQUIT)
        postgres.start()
        assert await put(writer, called(1, number=21)) == [True]
    assert _query(postgres, url, "SELECT count(*), sum(number) FROM calls") == [(21, sum(range(22)))]


async def test_a_journal_that_is_not_up_yet_is_waited_for(postgres: Postgres) -> None:
    url = postgres.new_database()
    postgres.stop()
    try:
        async with writing(url) as writer:
            assert await put(writer, opened(1)) == [False]
            postgres.start()
            await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
            assert writer.health.lost == 0
    finally:
        postgres.stop()
        postgres.start()
    assert _query(postgres, url, "SELECT id FROM sessions") == [(1,)]


async def test_a_wrong_password_is_reported_without_it(postgres: Postgres) -> None:
    url = postgres.new_database().replace("s3cret", "hunter2")
    with structlog.testing.capture_logs() as logged:
        async with writing(url) as writer:
            assert await put(writer, opened(1)) == [False]
            assert "correct the user or the password" in writer.health.hint
            assert "hunter2" not in f"{writer.health} {logged} {writer.options}"


async def test_a_lock_on_the_tables_is_trouble_until_it_is_gone(postgres: Postgres) -> None:
    import psycopg

    url = postgres.new_database()
    async with writing(url, WriterLimits(stall_s=0.5, tick_s=0.05)) as writer:
        writer.add(opened(1))
        await until(lambda: writer.health.committed == 1)
        with psycopg.connect(url) as holder:
            holder.execute("LOCK TABLE calls IN ACCESS EXCLUSIVE MODE")
            assert await put(writer, called(1)) == [False]
            assert writer.health.state == "trouble"
            assert "too long" in writer.health.reason
            holder.rollback()
            await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
        holder.close()
    assert _query(postgres, url, "SELECT count(*) FROM calls") == [(1,)]


async def test_fsync_is_asked_of_the_database(postgres: Postgres) -> None:
    url = postgres.new_database()
    for durability, commit in (("process", "off"), ("fsync", "on")):
        async with writing(url, durability=durability) as writer:
            read = await writer.read(lambda c: c.exec_driver_sql("SHOW synchronous_commit").scalar())
            assert read == commit


async def test_tables_that_vanish_are_made_again(postgres: Postgres) -> None:
    url = postgres.new_database()
    async with writing(url) as writer:
        await put(writer, opened(1))
        _query(postgres, url, "DROP SCHEMA public CASCADE")
        _query(postgres, url, "CREATE SCHEMA public")
        await put(writer, opened(2))
        await until(lambda: writer.health.state == "ok" and not writer.health.waiting)
        assert await put(writer, called(2)) == [True]
    assert _query(postgres, url, "SELECT id FROM sessions") == [(2,)]
