"""Text search: what is found, what any text may do, and how the index keeps up."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orsay.errors import JournalDown
from orsay.journal.database import Store
from orsay.journal.read.query import Filter, trajectories, trajectory
from orsay.journal.schema import calls, prompts, sessions, values
from orsay.journal.search.index import search_file
from orsay.journal.search.indexer import CatchUp
from orsay.journal.search.query import catch_up, matches
from orsay.journal.search.words import Phrase, document, normal, phrases, texts_of
from orsay.journal.values import pack
from orsay.journal.write.writer import Writer
from sqlalchemy import delete, insert, select, update

from tests.journal.fill import Fill, Filled, fill
from tests.journal.journals import KINDS, filled_journal

FILL = Fill(sessions=150, faults=0.1, large=0.05)
Journal = tuple[Store, Filled]


@pytest.fixture(scope="module", params=KINDS)
def journal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    with filled_journal(request, request.param, tmp_path_factory.mktemp("journal"), FILL) as found:
        index_all(found[0])
        yield found


@pytest.fixture(params=KINDS)
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    with filled_journal(request, request.param, tmp_path, FILL) as found:
        yield found


@pytest.fixture
def in_file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    with filled_journal(request, "sqlite", tmp_path, FILL) as found:
        yield found


def index_all(store: Store) -> None:
    with store.reading() as connection:
        for _ in range(100):
            if catch_up(connection, 5) == 0:
                return
    raise AssertionError("the index never gets there")


def found_by(store: Store, text: str, wanted: Filter = Filter()) -> list[str]:  # noqa: B008  # it is frozen
    with store.reading() as connection:
        return [each.id for each in trajectories(connection, replace(wanted, text=text), 1000).items]


def said_in(store: Store, id: int) -> str:
    """All the text of a session, as JSON."""
    with store.reading() as connection:
        found = trajectory(connection, id)
    assert found is not None
    return json.dumps(found.model_dump(include={"prompt", "steps"}), ensure_ascii=False)


def say(store: Store, session: int, text: str, number: int = 90, *, large: bool = False) -> None:
    """One more call in that session."""
    result = json.dumps({"ok": True, "output": {"blocks": [{"type": "text", "text": text}]}})
    with store.writing() as connection:
        row = {
            "id": session + number, "session": session, "number": number, "kind": "call", "task_id": "t",
            "name": "say", "input": "{}", "result": None if large else result, "finished": False,
            "discarded": False, "started_at": 1.0,
        }  # fmt: skip
        connection.execute(insert(calls), [row])
        if large:
            value = {"row": row["id"], "field": "result", "session": session, "data": pack(result)}
            connection.execute(insert(values), [value])


def test_a_word_finds_every_session_that_has_it(journal: Journal) -> None:
    store, made = journal
    expected = [str(id) for id in reversed(made.ids) if "karma" in said_in(store, id)]
    assert 10 < len(expected) < FILL.sessions
    assert found_by(store, "karma") == expected
    assert found_by(store, "KARMA") == expected
    assert found_by(store, "karm") == expected


def test_all_words_must_be_there_in_any_order(journal: Journal) -> None:
    store, made = journal
    both = [str(id) for id in reversed(made.ids) if all(w in said_in(store, id) for w in ("karma", "fjord"))]
    assert found_by(store, "fjord karma") == found_by(store, "karma fjord") == both


def test_words_in_quotes_must_follow_each_other(journal: Journal) -> None:
    store, made = journal
    expected = [str(id) for id in reversed(made.ids) if "ember basil" in said_in(store, id)]
    assert expected
    assert found_by(store, '"ember basil"') == expected
    assert found_by(store, '"ember basi"') == []
    assert found_by(store, '"ember basil') == expected  # the second quote is not typed yet


def test_text_and_other_filters_hold_together(journal: Journal) -> None:
    store, made = journal
    rows = {str(row["id"]): row for row in made.rows}
    expected = [
        id for id in found_by(store, "karma") if rows[id]["environment"] == "doors" and rows[id]["finished"]
    ]
    assert found_by(store, "karma", Filter(environment="doors", finished=True)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_filters_that_leave_few_sessions_find_them_among_many_matches(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    many = replace(FILL, sessions=700, words=40)
    with filled_journal(request, kind, tmp_path, many) as (store, made):
        index_all(store)
        everywhere = set(found_by(store, "karma"))
        assert len(everywhere) > 600
        first, middle = made.rows[40], made.rows[300]
        for wanted in (
            Filter(until=first["started_at"]),
            Filter(until=first["started_at"], environment="doors"),
            Filter(task=middle["task"], environment=middle["environment"]),
            Filter(run=middle["run"], step=middle["step"]),
            Filter(sid=first["sid"]),
            Filter(reward_min=7.0),
        ):
            with store.reading() as connection:
                passing = [each.id for each in trajectories(connection, wanted, 1000).items]
            expected = [id for id in passing if id in everywhere]
            assert found_by(store, "karma", wanted) == expected
            with store.reading() as connection:
                page = trajectories(connection, replace(wanted, text="karma"), 3)
                assert [each.id for each in page.items] == expected[:3]
                if page.next is not None:
                    below = trajectories(connection, replace(wanted, text="karma"), 1000, page.next)
                    assert [each.id for each in below.items] == expected[3:]


def test_pages_of_a_search_follow_each_other(journal: Journal) -> None:
    store, _ = journal
    whole = found_by(store, "karma")
    pages: list[str] = []
    before = None
    with store.reading() as connection:
        while True:
            page = trajectories(connection, Filter(text="karma"), 4, before)
            pages += [each.id for each in page.items]
            before = page.next
            if before is None:
                break
    assert pages == whole


def test_names_of_calls_faults_and_ids_can_be_searched(journal: Journal) -> None:
    store, made = journal
    row = next(row for row in made.rows if row["fault"] == "worker_lost")
    assert str(row["id"]) in found_by(store, "worker_lost")
    with store.reading() as connection:
        failed = select(calls.c.fault_id).where(calls.c.session == row["id"], calls.c.fault.is_not(None))
        fault_id = connection.execute(failed).scalar_one()
    assert found_by(store, fault_id) == [str(row["id"])]
    for name in (row["sid"], row["trace"], row["rollout"] or row["sid"], str(row["id"])):
        assert str(row["id"]) in found_by(store, name)


def test_large_values_can_be_searched_and_images_are_not(journal: Journal) -> None:
    store, _ = journal
    with store.reading() as connection:
        large = set(connection.execute(select(values.c.session).where(values.c.field == "result")).scalars())
    assert large
    for id in large:
        long = next(t for t in said_in(store, id).split('"') if len(t.split()) == 600).split()
        assert str(id) in found_by(store, '"' + " ".join(long[-6:]) + '"')
    assert found_by(store, "iVBORw0KGgo") == []


HOSTILE = [
    '"', '""', '"""', "'", "--", ";", "*", "karma*", "*karma", "(", ")", "karma OR", "OR",
    "NOT", "AND karma", "NEAR(karma fjord)",
    "karma NEAR fjord", "text:karma", "^karma", "karma -fjord", "a:b", "{text}: karma", "%", "_", "\\", "\\'",
    "karma\x00fjord", "\x00",
    "'; DROP TABLE sessions; --", "karma & ! fjord", "karma <-> fjord", "karma:*", "!", "|", "<->",
    "'karma' | 'x'",    "\ud7ff", "💥",
    " ", "\n\t", "word " * 500, "x" * 5000, '"' * 2001, "\u202e", "ﬁn", "①",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_any_text_is_words_and_nothing_else(journal: Journal, text: str) -> None:
    store, _ = journal
    found = found_by(store, text)
    if not text.strip():  # asks for nothing
        assert len(found) == FILL.sessions
    elif not any(phrase.words for phrase in phrases(text)):
        assert found == []
    with store.reading() as connection:
        assert len(trajectories(connection, limit=1000).items) == FILL.sessions


@given(st.text(max_size=60))
def test_any_text_at_all_can_be_asked_of_sqlite(text: str) -> None:
    from orsay.journal.search.words import as_fts5

    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
        connection.execute("INSERT INTO words VALUES (?)", (normal(text),))
        wanted = phrases(text.replace('"', " "))
        if wanted:
            found = connection.execute("SELECT count(*) FROM words WHERE words MATCH ?", (as_fts5(wanted),))
            assert found.fetchone() == (1,)  # a text holds its own words


def test_an_operator_is_a_word_like_any_other(fresh: Journal) -> None:
    store, made = fresh
    say(store, made.ids[3], "either this OR that")
    index_all(store)
    assert found_by(store, "this OR") == [str(made.ids[3])]
    assert found_by(store, "this OR karma") == found_by(store, "karma this or")


def test_accents_case_and_scripts_without_spaces(fresh: Journal) -> None:
    store, made = fresh
    say(store, made.ids[0], "Le Café de la Gare, ÇA VA: naïveté!")
    say(store, made.ids[1], "世界の猫はかわいい", large=True)
    say(store, made.ids[2], "Straße größer Привет мир")
    index_all(store)
    for text in ("cafe gare", "CAFÉ", '"ça va"', "naivete"):
        assert found_by(store, text) == [str(made.ids[0])], text
    for text in ("猫", "世界", "かわ", "世界の猫"):
        assert found_by(store, text) == [str(made.ids[1])], text
    assert found_by(store, "猫世界") == []
    for text in ("straße", "привет", "groß"):
        assert found_by(store, text) == [str(made.ids[2])], text


def test_a_prompt_and_messages_are_found_and_names_of_fields_are_not(fresh: Journal) -> None:
    store, made = fresh
    message = {"role": "user", "blocks": [{"type": "text", "text": "xylophone", "detail": None}]}
    with store.writing() as connection:
        row = {"session": made.ids[7], "kind": "messages", "text": json.dumps([message])}
        connection.execute(insert(prompts), [row])
    index_all(store)
    assert found_by(store, "xylophone") == [str(made.ids[7])]
    assert found_by(store, "blocks") == found_by(store, "detail") == []


def test_a_search_says_what_it_has_not_looked_at_and_goes_on_from_the_newest(fresh: Journal) -> None:
    store, made = fresh
    with store.reading() as connection:
        left = FILL.sessions
        while left:  # each time a little more
            last, left = left, catch_up(connection, 0)
            assert left < last
            known = [id for batch in matches(connection, "task") for id in batch]
            assert known == sorted(made.ids, reverse=True)[: len(known)]
            assert len(known) == FILL.sessions - left


def test_new_sessions_and_new_calls_of_old_ones_are_found(fresh: Journal) -> None:
    store, made = fresh
    living = made.ids[-1]
    with store.writing() as connection:
        connection.execute(update(sessions).where(sessions.c.id == living).values(ended_at=None))
    index_all(store)
    say(store, living, "zeppelin")
    assert found_by(store, "zeppelin") == [str(living)]
    with store.writing() as connection:
        more = fill(connection, Fill(sessions=5, start=made.rows[-1]["started_at"] + 60, seed=9))
    say(store, more.ids[2], "zeppelin")
    assert found_by(store, "zeppelin") == [str(more.ids[2]), str(living)]
    say(store, living, "xylophone", 91)
    with store.writing() as connection:
        connection.execute(update(sessions).where(sessions.c.id == living).values(ended_at=2.0))
    assert found_by(store, "xylophone") == [str(living)]


def test_sessions_that_were_removed_are_not_found_and_leave_the_index(fresh: Journal) -> None:
    store, made = fresh
    say(store, made.ids[0], "zeppelin")
    say(store, made.ids[1], "zeppelin")
    index_all(store)
    assert len(found_by(store, "zeppelin")) == 2
    with store.writing() as connection:
        connection.execute(delete(sessions).where(sessions.c.id == made.ids[0]))
    assert found_by(store, "zeppelin") == [str(made.ids[1])]
    with store.reading() as connection:
        assert [id for batch in matches(connection, "zeppelin") for id in batch] == [made.ids[1]]


def test_an_empty_journal_has_nothing_to_find(fresh: Journal) -> None:
    store, _ = fresh
    with store.writing() as connection:
        connection.execute(delete(sessions))
    assert found_by(store, "karma") == []


def test_the_index_of_a_file_is_beside_it_for_its_owner_alone(in_file: Journal) -> None:
    store, _ = in_file
    index_all(store)
    assert store.options.path is not None
    file = search_file(store.options.path)
    assert file == store.options.path.with_name("journal-search.db")
    assert file.stat().st_mode & 0o777 == 0o600


def test_filling_the_index_writes_nothing_into_the_journal(in_file: Journal) -> None:
    store, _ = in_file
    with store.reading() as reader:
        reader.exec_driver_sql("PRAGMA query_only = ON")  # whatever would write, fails
        while catch_up(reader, 5):
            pass
        assert trajectories(reader, Filter(text="karma")).items
        reader.exec_driver_sql("PRAGMA query_only = OFF")


def test_a_damaged_index_is_made_again(in_file: Journal) -> None:
    store, _ = in_file
    index_all(store)
    before = found_by(store, "karma")
    assert store.options.path is not None
    file = search_file(store.options.path)
    for each in (Path(f"{file}-wal"), Path(f"{file}-shm")):
        each.unlink(missing_ok=True)
    file.write_bytes(b"no database at all" * 1000)
    index_all(store)
    assert found_by(store, "karma") == before


def test_who_searches_while_another_fills_the_index_waits_for_nobody(in_file: Journal) -> None:
    store, _ = in_file
    index_all(store)
    before = found_by(store, "karma")
    assert store.options.path is not None
    with closing(sqlite3.connect(search_file(store.options.path), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert found_by(store, "karma") == before


def test_an_index_without_a_place_says_what_to_do(in_file: Journal) -> None:
    store, _ = in_file
    assert store.options.path is not None
    search_file(store.options.path).mkdir()
    with store.reading() as connection:
        with pytest.raises(JournalDown, match=r"search index .*journal-search\.db cannot be written"):
            trajectories(connection, Filter(text="karma"))
        assert trajectories(connection).items  # the rest works on


def test_what_a_person_types_is_taken_apart_into_phrases() -> None:
    assert phrases('guess_number "the  Answer" 42!') == [
        Phrase(("guess", "number"), open_end=True),
        Phrase(("the", "answer"), open_end=False),
        Phrase(("42",), open_end=True),
    ]
    assert phrases("-- !! ''") == []


def test_words_of_json_are_its_strings_and_numbers() -> None:
    value = {"type": "x", "text": "a", "n": 4, "flag": True, "none": None, "deep": [{"k": "b"}, 1.5]}
    assert list(texts_of(value)) == ["a", "4", "b", "1.5"]
    assert list(texts_of({"data": "AAAA", "mimeType": "image/png"})) == ["image/png"]
    assert len(document(["word " * 100_000, "more"])) <= 200_000


async def test_the_index_goes_on_in_the_background_until_nothing_is_left(in_file: Journal) -> None:
    store, made = in_file
    writer = Writer(store.options)
    writer.start()
    catching = CatchUp(writer)
    try:
        catching.go_on()
        catching.go_on()  # somebody else searches
        async with asyncio.timeout(60):
            while catching.works:
                await asyncio.sleep(0.05)
        known = await writer.read(
            lambda connection: [id for batch in matches(connection, "task") for id in batch]
        )
        assert known == sorted(made.ids, reverse=True)
        await asyncio.to_thread(say, store, made.ids[-1], "zeppelin")
        catching.go_on()
        await catching.close()  # in the middle of it
        await catching.close()
        assert not catching.works
    finally:
        await writer.close()


async def test_an_index_without_a_place_ends_the_work_in_the_background(in_file: Journal) -> None:
    store, _ = in_file
    assert store.options.path is not None
    search_file(store.options.path).mkdir()
    writer = Writer(store.options)
    writer.start()
    catching = CatchUp(writer)
    try:
        catching.go_on()
        async with asyncio.timeout(60):
            while catching.works:
                await asyncio.sleep(0.05)
        await catching.close()
        assert writer.health.state == "ok"
    finally:
        await writer.close()
