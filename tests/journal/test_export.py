"""Episodes as conversations: their form, what is left out, and whether trainers take them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from orsay.errors import ConfigError
from orsay.journal.database import Store
from orsay.journal.export import Export, Recipe, to_dataset
from orsay.journal.read.chat import conversation, functions
from orsay.journal.read.filters import Filter
from orsay.journal.read.models import Image, Step, Text, Trajectory
from orsay.journal.read.query import trajectories, trajectory
from orsay.journal.schema import prompts
from sqlalchemy import delete

from tests.journal.fill import START, Fill, Filled
from tests.journal.journals import filled_journal

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples" / "journal"
FILL = Fill(sessions=240, faults=0.2, given_up=0.3, open=12, images=0.2, large=0.05)
PICTURE = base64.b64encode(b"a picture").decode()
Journal = tuple[Store, Filled]


@pytest.fixture(scope="module")
def journal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    with filled_journal(request, "sqlite", tmp_path_factory.mktemp("journal"), FILL) as found:
        yield found


@pytest.fixture
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    with filled_journal(request, "sqlite", tmp_path, FILL) as found:
        yield found


def place(journal: Journal) -> str:
    return str(journal[0].options.path)


_KEPT = {
    "reward", "reward_sum", "finished", "environment", "split", "task_index", "task", "run", "step",
    "rollout", "calls", "faults", "fault", "sid", "trace", "started_at", "ended_at",
}  # fmt: skip


def records(journal: Journal, recipe: Recipe) -> list[dict[str, Any]]:
    export = Export(recipe)
    found: list[dict[str, Any]] = []
    while not export.done:
        with journal[0].reading() as connection:
            found += [json.loads(line) for line in export.lines(connection).splitlines()]
    assert export.written == len(found)
    return found


# conversations


def step(n: int, **more: Any) -> Step:
    fields: dict[str, Any] = {
        "id": str(n), "number": n, "kind": "call", "task_id": "t", "name": "look", "input": {"n": n},
        "blocks": [Text(text=f"seen {n}")], "metadata": None, "error": None, "reason": None, "reward": None,
        "finished": False, "discarded": False, "fault": None, "fault_id": None, "message": None,
        "started_at": START + n, "queue_s": None, "run_s": None, "stream_s": None, "total_s": 0.5,
        "scores": [],
    }  # fmt: skip
    return Step(**{**fields, **more})


def played(journal: Journal, *steps: Step, **more: Any) -> Trajectory:
    with journal[0].reading() as connection:
        found = trajectory(connection, journal[1].ids[0])
    assert found is not None
    return found.model_copy(update={"steps": list(steps), "prompt": [Text(text="Play.")], **more})


def call(number: int, name: str = "look") -> dict[str, Any]:
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": name, "arguments": {"n": number}},
    }


def test_each_call_is_an_assistants_and_each_result_a_tools(journal: Journal) -> None:
    assert conversation(played(journal, step(1), step(2))) == [
        {"role": "user", "content": "Play."},
        {"role": "assistant", "content": "", "tool_calls": [call(1)]},
        {"role": "tool", "tool_call_id": "call_1", "name": "look", "content": "seen 1"},
        {"role": "assistant", "content": "", "tool_calls": [call(2)]},
        {"role": "tool", "tool_call_id": "call_2", "name": "look", "content": "seen 2"},
    ]


def test_calls_that_ran_side_by_side_are_of_one_message(journal: Journal) -> None:
    # results came as 1, 2, 3; the first two ran together
    steps = (
        step(1, started_at=10.2, total_s=0.1),
        step(2, started_at=10.0, total_s=0.9),
        step(3, started_at=11.0),
    )
    found = conversation(played(journal, *steps))
    assert found is not None
    assert [message["role"] for message in found] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
    ]
    assert found[1]["tool_calls"] == [call(2), call(1)]
    assert [found[2]["content"], found[3]["content"]] == ["seen 2", "seen 1"]


def test_arguments_can_be_a_string_as_in_openais_api(journal: Journal) -> None:
    found = conversation(played(journal, step(1, input={"word": "größer"})), arguments="string")
    assert found is not None
    assert found[1]["tool_calls"][0]["function"]["arguments"] == '{"word": "größer"}'


def test_a_refusal_is_an_answer_and_so_is_a_fault_that_the_episode_outlived(journal: Journal) -> None:
    steps = (
        step(1, blocks=[], error="no such door", reason="input_validation"),
        step(2, blocks=[], fault="tool_error", message="KeyError: 7"),
        step(3, blocks=[]),
    )
    found = conversation(played(journal, *steps))
    assert found is not None
    answers = [message["content"] for message in found if message["role"] == "tool"]
    assert answers == ["no such door", "Error: KeyError: 7", "(no output)"]


def test_what_came_too_late_or_never_is_left_out(journal: Journal) -> None:
    steps = step(1), step(2, discarded=True), step(3, number=None, total_s=None), step(4, kind="score_group")
    found = conversation(played(journal, *steps))
    assert found is not None
    assert [message["role"] for message in found] == ["user", "assistant", "tool"]


def test_images_are_parts_and_those_of_a_result_follow_it(journal: Journal) -> None:
    picture = Image(data=PICTURE, mimeType="image/png")
    shown = played(
        journal, step(1, blocks=[Text(text="See:"), picture]), prompt=[Text(text="Look."), picture]
    )
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    found = conversation(shown)
    assert found is not None
    assert [message["content"] for message in found] == [
        [{"type": "text", "text": "Look."}, url],
        "",
        "See:\n[image: image/png]",
        [url],
    ]
    blind = conversation(shown, images=False)
    assert blind is not None
    assert [message["content"] for message in blind] == [
        "Look.\n[image: image/png]",
        "",
        "See:\n[image: image/png]",
    ]


def test_an_image_that_is_none_is_named_only(journal: Journal) -> None:
    found = conversation(played(journal, step(1, blocks=[Image(data="%%%", mimeType="image/png")])))
    assert found is not None
    assert [message["content"] for message in found] == ["Play.", "", "[image: image/png]"]


def test_messages_of_the_environment_replace_the_prompt(journal: Journal) -> None:
    def text(content: str) -> dict[str, Any]:
        return {"type": "text", "text": content, "detail": None}

    looks = {"type": "tool_call", "id": "a", "name": "look", "input": {}}
    messages = [
        {"role": "system", "blocks": [text("Be brief.")], "detail": None},
        {"role": "user", "blocks": [text("Hi."), text("Play.")], "detail": None},
        {
            "role": "assistant",
            "blocks": [text("I look."), looks],
        },
        {"role": "user", "blocks": [{"type": "tool_result", "tool_call_id": "a", "blocks": [text("dark")]}]},
    ]
    found = conversation(played(journal, step(1), messages=messages))
    assert found is not None
    called = {"id": "a", "type": "function", "function": {"name": "look", "arguments": {}}}
    assert found[:4] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi.\nPlay."},
        {"role": "assistant", "content": "I look.", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "a", "content": "dark"},
    ]
    assert [message["role"] for message in found[4:]] == ["assistant", "tool"]


def test_tools_are_functions_with_a_schema_each() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    found = functions(
        [{"name": "a", "description": "A.", "input_schema": schema}, {"name": "b", "input_schema": None}]
    )
    assert [each["function"]["parameters"] for each in found] == [
        schema,
        {"type": "object", "properties": {}},
    ]
    assert {each["type"] for each in found} == {"function"}


# what is exported


def test_lost_and_living_episodes_are_left_out_unless_asked_for(journal: Journal) -> None:
    with journal[0].reading() as connection:
        items = trajectories(connection, limit=1000).items
    lost = {each.id for each in items if each.fault is not None and not each.finished}
    living = {each.id for each in items if each.ended_at is None and not each.finished}
    every = [each.id for each in items]
    assert lost and living - lost
    assert [r["id"] for r in records(journal, Recipe())] == [id for id in every if id not in lost | living]
    with_lost = {r["id"] for r in records(journal, Recipe(lost=True))}
    assert with_lost == {id for id in every if id not in living}
    assert [r["id"] for r in records(journal, Recipe(lost=True, living=True))] == every


def test_a_record_says_what_its_session_came_to(journal: Journal) -> None:
    by_id = {str(row["id"]): row for row in journal[1].rows if row["ended_at"] is not None}
    found = [record for record in records(journal, Recipe()) if record["id"] in by_id]
    assert len(found) > 100
    for record in found:
        row = by_id[record["id"]]
        for name in _KEPT:
            assert record[name] == row[name]
        assert len(record["rewards"]) == row["calls"]
        assert sum(reward or 0 for reward in record["rewards"]) == (row["reward_sum"] or 0)
        assert [tool["function"]["name"] for tool in record["tools"]] == ["answer", "look"]
        assert record["messages"][0]["role"] == "user"
        made = [c for message in record["messages"] for c in message.get("tool_calls", ())]
        answered = [message["tool_call_id"] for message in record["messages"] if message["role"] == "tool"]
        assert [each["id"] for each in made] == answered
        assert len(made) == row["calls"]


def test_filters_hold_for_an_export(journal: Journal) -> None:
    wanted = Filter(environment="doors", reward_min=1.0, since=START + 100, text='"karma ocean"')
    found = records(journal, Recipe(wanted=wanted))
    assert found
    for record in found:
        assert (record["environment"], record["reward"]) == ("doors", 1.0)
        assert "karma ocean" in json.dumps(record["messages"])
    without_text = records(journal, Recipe(wanted=replace(wanted, text=None)))
    assert len(found) < len(without_text)


def test_full_records_are_whole_trajectories(journal: Journal) -> None:
    found = records(journal, Recipe(full=True, wanted=Filter(environment="guess")))
    with journal[0].reading() as connection:
        for record in found[::7]:
            whole = trajectory(connection, record["id"])
            assert whole is not None
            assert record == whole.model_dump()


def test_sessions_without_a_prompt_are_left_out_and_counted(fresh: Journal) -> None:
    store, made = fresh
    before = len(records(fresh, Recipe(lost=True, living=True)))
    with store.writing() as connection:
        connection.execute(
            delete(prompts).where(prompts.c.session == made.ids[4], prompts.c.kind == "prompt")
        )
    export = Export(Recipe(lost=True, living=True))
    while not export.done:
        with store.reading() as connection:
            export.page(connection)
    assert (export.written, export.silent, export.total) == (before - 1, 1, FILL.sessions)
    assert len(records(fresh, Recipe(full=True, lost=True, living=True))) == before


def test_tools_that_a_session_never_asked_for_are_those_of_another(fresh: Journal) -> None:
    store, made = fresh
    by_environment = {row["environment"]: row["id"] for row in made.rows}
    with store.writing() as connection:
        tools = prompts.c.kind == "task_tools"
        connection.execute(delete(prompts).where(tools, prompts.c.session != by_environment["doors"]))
    export = Export(Recipe())
    found: list[dict[str, Any]] = []
    while not export.done:
        with store.reading() as connection:
            found += export.page(connection)
    for record in found:
        assert len(record["tools"]) == (2 if record["environment"] == "doors" else 0)
    assert export.without_tools == sum(record["environment"] != "doors" for record in found)


# datasets


def test_a_dataset_has_the_same_rows_as_the_lines(journal: Journal) -> None:
    found = to_dataset(place(journal), images=False)
    expected = records(journal, Recipe(images=False))
    assert "images" not in found.column_names
    assert list(found) == expected
    assert found.num_rows == len(expected)


def test_images_are_in_a_column_with_a_mark_where_each_belongs(journal: Journal) -> None:
    found = to_dataset(place(journal), environment="doors")
    marks = [
        sum(
            part["type"] == "image"
            for m in row["messages"]
            if isinstance(m["content"], list)
            for part in m["content"]
        )
        for row in found
    ]
    assert marks == [len(row["images"]) for row in found]
    assert sum(marks) > 0
    first = next(row["images"][0] for row in found if row["images"])
    assert first.size == (1, 1)


def test_arguments_of_a_dataset_are_only_those_of_the_call(journal: Journal) -> None:
    for row in to_dataset(place(journal), run="alpha", images=False):
        for message in row["messages"]:
            assert None not in message.values()  # a column of structs would have every field in every message
            for made in message.get("tool_calls", ()):
                assert set(made["function"]["arguments"]) == {"text", "n"}


def test_python_takes_the_same_filters(journal: Journal) -> None:
    since = datetime.fromtimestamp(START + 500, UTC)
    found = to_dataset(
        place(journal), split="train", finished=True, since=since, until=START + 1200, images=False
    )
    assert 0 < found.num_rows < 100
    assert set(found["split"]) == {"train"}
    assert all(START + 500 <= moment < START + 1200 for moment in found["started_at"])


def test_no_episodes_are_a_dataset_with_all_columns(journal: Journal) -> None:
    found = to_dataset(place(journal), environment="nobody's")
    assert found.num_rows == 0
    assert {"messages", "tools", "reward"} <= set(found.column_names)


def test_a_journal_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no journal at .*nowhere\.db"):
        to_dataset(str(tmp_path / "nowhere.db"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.database
def test_a_journal_in_postgresql_gives_the_same_dataset(
    request: pytest.FixtureRequest, journal: Journal, tmp_path: Path
) -> None:
    with filled_journal(request, "postgresql", tmp_path, FILL) as (store, _):
        url = store.options.url.render_as_string(hide_password=False)
        found = to_dataset(url, environment="doors", text='"karma ocean"', images=False)
    assert list(found) == list(
        to_dataset(place(journal), environment="doors", text='"karma ocean"', images=False)
    )
