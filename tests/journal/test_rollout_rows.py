"""Rows of rollouts that clients log: read as they were written, bounded, removed when they are old."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from orsay.errors import JournalDown
from orsay.journal.read.rollouts import RolloutFilter, count_rollouts, rollout, rollout_page
from orsay.journal.records import RolloutLogged, RolloutOpened
from orsay.journal.schema import rollout_messages, rollouts, sessions, values
from orsay.journal.write.writer import Writer, WriterLimits
from orsay.protocols.rollouts.events import rollout_id
from orsay.protocols.rollouts.recording import Recording
from pydantic_core import to_json
from sqlalchemy import func, select

from .postgres import Postgres
from .rows import ended, opened, put, writing

DAY_S = 86_400.0
OFTEN = WriterLimits(retention_s=0.05, tick_s=0.05, stall_s=60)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.database)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


def started(event: str = "r", **changes: Any) -> RolloutOpened:
    row = RolloutOpened(
        id=rollout_id("", event),
        event=event,
        owner="",
        run="a run",
        name=None,
        environment="o/e",
        variant=None,
        split=None,
        step=1,
        task_spec=None,
        metadata='{"long":"' + "x" * 5_000 + '"}',
        run_info=None,
        client="tests",
        started_at=time.time(),
    )
    return row._replace(**changes)


def logged(event: str = "r", number: int = 0, content: str = "hello", **changes: Any) -> RolloutLogged:
    row = RolloutLogged(
        rollout=rollout_id("", event),
        event=f"m{number}",
        number=number,
        kind="user_message",
        content=content,
        summary=None,
        reference=None,
        name=None,
        call=None,
        reward=None,
        finished=False,
        metadata=None,
        at=1.0,
    )
    return row._replace(**changes)


async def _left(writer: Writer) -> dict[str, int]:
    def read(connection: Any) -> dict[str, int]:
        tables = (rollouts, rollout_messages, values, sessions)
        return {each.name: connection.scalar(select(func.count()).select_from(each)) for each in tables}

    return await writer.read(read)


async def test_rows_are_read_as_they_were_written(place: str) -> None:
    rows = [
        logged(number=1, content="y" * 9_000, reward=0.5, finished=True),
        logged(number=0, content="half \ud800, nul \0"),
        logged(number=2, kind="tool_call", name="bash", call="c", metadata='{"a":1}'),
        logged(event="r", number=9, kind="update", metadata='{"task_index":3}')._replace(number=None),
    ]
    async with writing(place) as writer:
        assert all(await put(writer, started(), *rows))
        assert all(await put(writer, started(run="ignored"), rows[0]._replace(content="ignored")))
        found = await writer.read(lambda c: rollout(c, rollout_id("", "r")))
        assert await writer.read(lambda c: rollout(c, rollout_id("", "r"), owner="another")) is None
        page = await writer.read(lambda c: rollout_page(c, RolloutFilter(step=1)))
        assert await writer.read(lambda c: count_rollouts(c, RolloutFilter(step=2))) == 0
    assert found is not None
    assert (found.run, found.messages, found.reward, found.finished) == ("a run", 3, 0.5, True)
    assert found.metadata == {"long": "x" * 5_000} and found.info == {"task_index": 3}
    assert [each.content for each in found.items] == ["half ?, nul \ufffd", "y" * 9_000, "hello"]
    assert found.items[2].metadata == {"a": 1}
    assert [each.event for each in page.items] == ["r"] and page.next is None


async def test_old_rollouts_go_with_all_that_is_theirs_and_sessions_stay(place: str) -> None:
    old = time.time() - 11 * DAY_S
    async with writing(place, OFTEN, max_age_days=10) as writer:
        assert all(await put(writer, opened(1), ended(1)))
        for number in range(25):
            event = f"old {number}"
            rows = [started(event, started_at=old), logged(event, content="z" * 5_000)]
            assert all(await put(writer, *rows))
        assert all(await put(writer, started("young"), logged("young", content="z" * 5_000)))
        while (left := await _left(writer))["rollouts"] > 1:
            await asyncio.sleep(0.02)
    assert left == {"rollouts": 1, "rollout_messages": 1, "large_values": 3, "sessions": 1}


async def test_beyond_a_number_the_oldest_go(place: str) -> None:
    async with writing(place, OFTEN, max_sessions=3) as writer:
        now = time.time()
        for number in range(12):
            assert all(await put(writer, started(str(number), started_at=now + number), logged(str(number))))
        while (await _left(writer))["rollouts"] > 3:
            await asyncio.sleep(0.02)
        page = await writer.read(lambda c: rollout_page(c, RolloutFilter()))
        assert [each.event for each in page.items] == ["11", "10", "9"]
        assert (await _left(writer))["rollout_messages"] == 3


async def test_beyond_a_size_the_oldest_go(tmp_path: Path) -> None:
    bound = 1_500_000
    async with writing(tmp_path / "journal.db", OFTEN, max_bytes=bound) as writer:
        content = "".join(map(str, range(10_000)))
        for number in range(150):
            assert all(await put(writer, started(str(number)), logged(str(number), content=content * 2)))
        while (left := (await _left(writer))["rollouts"]) == 150:
            await asyncio.sleep(0.02)
    assert 0 < left < 150


def _body(*events: dict[str, Any]) -> bytes:
    return to_json({"events": list(events)})


def _message(number: int, rollout: str = "r") -> dict[str, Any]:
    return {
        "eventType": "message",
        "eventId": f"m{number}",
        "rolloutEventId": rollout,
        "timestamp": 1,
        "index": number,
        "type": "user_message",
        "content": "hello",
    }


async def test_a_rollout_has_so_many_messages_and_no_more(place: str) -> None:
    begin = {"eventType": "rollout", "eventId": "r", "timestamp": 1, "runName": "a run"}
    async with writing(place) as writer:
        recording = Recording(writer, most_messages=5)
        first = await recording.record(_body(begin, *map(_message, range(4))), "", "tests", ())
        assert (first.stored, first.full) == (5, [])
        other = {**begin, "eventId": "other"}
        rows = [*map(_message, range(4, 9)), other, _message(0, "other")]
        then = await recording.record(_body(*rows), "", "tests", ())
        assert (then.stored, then.full, then.unknown) == (3, ["r"], [])
        assert (await _left(writer))["rollout_messages"] == 6


async def test_a_journal_that_fails_is_told(tmp_path: Path) -> None:
    limits = WriterLimits(wait_limit_s=0.2, stall_s=60, retry_s=0.1, close_s=0.2, tick_s=0.05)
    place = tmp_path / "a folder"
    place.mkdir()
    begin = {"eventType": "rollout", "eventId": "r", "timestamp": 1, "runName": "a run"}
    async with writing(place, limits) as writer:
        recording = Recording(writer, most_messages=5)
        with pytest.raises(JournalDown):
            await recording.record(_body(begin), "", "tests", ())
        with pytest.raises(JournalDown):
            await recording.record(_body(_message(0)), "", "tests", ())
