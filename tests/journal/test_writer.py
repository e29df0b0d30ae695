"""What is added to the journal is in its tables: all of it, once, in the form that readers expect."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest
from orsay.errors import JournalDown
from orsay.journal.ids import Ids, moment_of, new_id
from orsay.journal.records import EvaluationSaved
from orsay.journal.values import unpack
from orsay_protocol.sse import encode_result
from sqlalchemy import text

from .rows import (
    brought_up_to_date,
    called,
    dump,
    ended,
    opened,
    options,
    prompted,
    put,
    query,
    started,
    until,
    writing,
)


async def test_a_session_and_its_calls_are_in_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    session = new_id()
    call = called(session, "naïve ☃")
    async with writing(path) as writer:
        assert all(await put(writer, opened(session), prompted(session), call, ended(session)))
    assert query(
        path, "SELECT id, environment, step, secrets, ended_at > started_at, reward FROM sessions"
    ) == [(session, "echo", 1, 0, 1, 0.5)]
    assert query(path, "SELECT id, session, number, input, result, reward, run_s FROM calls") == [
        (call.id, session, 1, '{"text":"naïve ☃"}', call.wire.decode()[18:-4], 0.5, 0.002)
    ]
    assert query(path, "SELECT session, kind, text FROM prompts") == [
        (session, "prompt", '[{"type":"text","text":"Say it."}]')
    ]
    ((data,),) = query(path, f"SELECT data FROM large_values WHERE row={session} AND field='request'")
    assert json.loads(unpack(data)) == {"split": "train", "index": 3}


async def test_a_result_takes_the_place_of_the_call_that_was_begun(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    begun = started(1)
    async with writing(path) as writer:
        await put(writer, begun)
        await brought_up_to_date(writer)
        assert query(path, "SELECT id, number, input, result FROM calls") == [
            (begun.id, None, '{"text":"hello"}', None)
        ]
        await put(writer, called(1, id=begun.id))
    ((number, result),) = query(path, "SELECT number, result FROM calls")
    assert number == 1
    assert json.loads(result)["output"]["reward"] == 0.5


async def test_a_call_that_begins_and_ends_in_one_group_is_one_row(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    begun = started(1)
    async with writing(path) as writer:
        assert await put(writer, begun, called(1, id=begun.id), started(2), opened(2), ended(2)) == [True] * 5
    assert query(path, "SELECT session, number FROM calls ORDER BY session") == [(1, 1), (2, None)]
    assert query(path, "SELECT id, end_reason FROM sessions") == [(2, "deleted")]


@pytest.mark.parametrize("size", [10, 2_100, 200_000])
async def test_a_result_of_any_size_gives_back_what_the_client_decoded(tmp_path: Path, size: int) -> None:
    path = tmp_path / "journal.db"
    content = (" é\n☃ \\u0041\t" * size)[:size]
    call = called(1, content)
    async with writing(path) as writer:
        await put(writer, call)
    ((given, result),) = query(path, "SELECT input, result FROM calls")
    large = dict(query(path, "SELECT field, data FROM large_values"))
    assert (given is None, result is None) == (size > 2_000, size > 2_000)
    assert json.loads(given or unpack(large["input"])) == {"text": content}
    again = encode_result((result or unpack(large["result"])).encode())
    assert _decoded(again) == _decoded(call.wire)
    assert _decoded(again)["output"]["blocks"][0]["text"] == content


def _decoded(wire: bytes) -> dict[str, dict[str, list[dict[str, str]]]]:
    from orsay_protocol.sse import Decoder

    found: dict[str, dict[str, list[dict[str, str]]]] = json.loads(
        "".join(event.data for event in Decoder().feed(wire))
    )
    return found


async def test_images_are_beside_their_row(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    async with writing(path) as writer:
        await put(writer, called(1, result=dump({"ok": True, "output": {"blocks": [picture]}})))
    assert query(path, "SELECT result FROM calls") == [(None,)]
    ((data,),) = query(path, "SELECT data FROM large_values")
    assert json.loads(unpack(data))["output"]["blocks"] == [picture]


async def test_faults_have_no_result(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await put(
            writer, called(1, wire=b"", fault="tool_error", fault_id="f1", message="it broke", reward=None)
        )
    assert query(path, "SELECT result, fault, fault_id, message, reward FROM calls") == [
        (None, "tool_error", "f1", "it broke", None)
    ]


async def test_group_scores_are_rows_too(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    scores = {"scores": [{"reward": 1.0, "metadata": {"why": "best"}}, {"reward": -2, "metadata": None}]}
    body = dump({"candidates": [{"a": 1}, {"b": 2}]})
    call = called(7, kind="score_group", name="score_group", body=body, result=dump(scores))
    async with writing(path) as writer:
        await put(writer, call)
    assert query(path, "SELECT call, candidate, session, reward, detail FROM scores") == [
        (call.id, 0, 7, 1.0, '{"metadata":{"why":"best"}}'),
        (call.id, 1, 7, -2.0, None),
    ]
    assert query(path, "SELECT input FROM calls") == [(body.decode(),)]


async def test_the_first_prompt_of_a_kind_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await put(writer, prompted(1, "one"), prompted(1, "two"))
        await put(writer, prompted(1, "three"), prompted(1, "x" * 5_000, kind="messages"))
        await put(writer, prompted(1, "y" * 5_000, kind="messages"))
    assert query(path, "SELECT kind, text FROM prompts ORDER BY kind") == [
        ("messages", None),
        ("prompt", '[{"type":"text","text":"one"}]'),
    ]
    ((data,),) = query(path, "SELECT data FROM large_values")
    assert "xxx" in unpack(data)


async def test_an_evaluation_takes_the_place_of_its_earlier_state(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    row = EvaluationSaved(new_id(), "e", "r", "", "echo", None, "m", 1.0, None, '{"mean":0}', b'{"n":0}')
    async with writing(path) as writer:
        await put(writer, row)
        await put(writer, row._replace(ended_at=2.0, summary='{"mean":1}', report=b'{"n":9}'))
    ((end, summary, report),) = query(path, "SELECT ended_at, summary, report FROM evaluations")
    assert (end, summary, unpack(report)) == (2.0, '{"mean":1}', '{"n":9}')


async def test_what_is_committed_is_read_at_once_and_by_others_a_moment_later(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        for number in range(1, 30):
            await put(writer, called(1, number=number))
            assert await writer.read(lambda c: c.scalar(text("SELECT max(number) FROM calls"))) == number
        await put(writer, called(1, number=30))
        await until(lambda: query(path, "SELECT max(number) FROM calls") == [(30,)])


async def test_rows_of_many_sessions_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        rows = [called(number % 37, number=number) for number in range(5_000)]
        assert all(await put(writer, *rows))
        assert (writer.health.committed, writer.health.waiting, writer.health.lost) == (5_000, 0, 0)
    assert query(path, "SELECT count(*), sum(number) FROM calls") == [(5_000, sum(range(5_000)))]


async def test_close_commits_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    acknowledged: list[bool] = []
    async with writing(path) as writer:
        for number in range(2_500):
            writer.add(called(1, number=number), acknowledged.append)
    assert query(path, "SELECT count(*) FROM calls") == [(2_500,)]
    assert acknowledged == [True] * 2_500


async def test_a_callback_that_raises_keeps_no_other_from_its_call(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    acknowledged: list[bool] = []

    def fail(_: bool) -> None:
        raise RuntimeError("a bug of the caller")

    async with writing(path) as writer:
        for number in range(3):
            writer.add(called(1, number=number), fail if number == 1 else acknowledged.append)
        assert await put(writer, called(1, number=3)) == [True]
        assert writer.health.state == "ok"
    assert acknowledged == [True, True]
    assert query(path, "SELECT count(*) FROM calls") == [(4,)]


async def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    async with writing(tmp_path / "journal.db") as writer:
        await put(writer, opened())
    assert await put(writer, opened()) == [False]
    assert (writer.health.state, writer.health.lost, writer.health.committed) == ("off", 1, 1)
    with pytest.raises(JournalDown, match="closed"):
        await writer.read(lambda connection: None)


async def test_rows_added_before_the_journal_is_open_are_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "journal.db"
    async with writing(path) as writer:
        assert await put(writer, opened(), called(1)) == [True, True]
    assert query(path, "SELECT count(*) FROM calls") == [(1,)]


async def test_the_event_loop_runs_on_while_rows_are_written(tmp_path: Path) -> None:
    loop_thread = threading.get_ident()
    async with writing(tmp_path / "journal.db") as writer:
        threads = {await writer.read(lambda connection: threading.get_ident()) for _ in range(3)}
        told_in: list[int] = []
        writer.add(opened(), lambda committed: told_in.append(threading.get_ident()))
        await until(lambda: bool(told_in))
    assert loop_thread not in threads
    assert told_in == [loop_thread]


async def test_readers_do_not_wait_for_each_other(tmp_path: Path) -> None:
    meet = threading.Barrier(3, timeout=60)
    async with writing(tmp_path / "journal.db") as writer:
        await asyncio.gather(*(writer.read(lambda connection: meet.wait()) for _ in range(3)))


async def test_halves_of_characters_and_zeros_do_not_stop_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    odd = called(1, name="half \ud83d", message="zero \0", body=b'{"name":"x","input":{"t":"\\ud83d"}}')
    async with writing(path) as writer:
        assert await put(writer, called(1), odd, called(1)) == [True] * 3
        assert writer.health.state == "ok"
    ((given,),) = query(path, "SELECT input FROM calls WHERE name LIKE 'half%'")
    assert json.loads(given) == {"t": "\ud83d"}
    assert query(path, "SELECT count(*) FROM calls") == [(3,)]


async def test_a_row_that_cannot_be_written_is_given_up_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        acknowledged = await put(
            writer, called(1), opened(2, task_index=2**70), opened(5), called(3), called(2)
        )
        assert acknowledged[:4] == [True, False, True, True]
        assert await put(writer, called(2)) == [False]  # nobody would find it
        assert writer.health.state == "ok"
    assert query(path, "SELECT id FROM sessions") == [(5,)]


async def test_fsync_is_asked_of_the_database(tmp_path: Path) -> None:
    for durability, synchronous in (("process", 1), ("fsync", 2)):
        async with writing(tmp_path / f"{durability}.db", durability=durability) as writer:
            read = await writer.read(lambda c: c.exec_driver_sql("PRAGMA synchronous").scalar())
            assert read == synchronous


def test_ids_grow_whatever_the_clock_does() -> None:
    times = iter([1_700_000_000.0] * 3_000 + [1_600_000_000.0] * 10 + [1_700_000_000.001] * 10)
    ids = Ids(lambda: next(times))
    made = [ids.new() for _ in range(3_020)]
    assert made == sorted(set(made))
    assert max(made) < 2**63
    assert abs(moment_of(made[0]) - 1_700_000_000.0) < 0.01


def test_ids_of_two_processes_differ() -> None:
    def clock() -> float:
        return 1_700_000_000.0

    made = [Ids(clock).new() for _ in range(20)]
    assert len(set(made)) > 10


def test_an_id_is_of_its_moment() -> None:
    assert abs(moment_of(Ids(lambda: 1_800_000_000.5).new()) - 1_800_000_000.5) < 0.002


def test_the_options_do_not_show_a_password() -> None:
    shown = repr(options("postgresql://me:hunter2@db.example/journal"))
    assert "hunter2" not in shown
    assert "db.example" in shown
