"""Pages of sessions and single trajectories, compared with what was written, in both kinds of journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from orsay.journal import migrations
from orsay.journal.database import Store
from orsay.journal.read.query import Filter, count, evaluation, evaluations, trajectories, trajectory
from orsay.journal.schema import calls, prompts, scores, values
from orsay.journal.schema import evaluations as evaluations_table
from orsay.journal.values import pack
from sqlalchemy import Connection, create_engine, event, insert, inspect, select

from tests.journal.fill import START, Fill, Filled, empty_journal, fill
from tests.journal.journals import KINDS, filled_journal

FILL = Fill(sessions=400, owners=("ada", "bob"), open=6, faults=0.2, steps=8)
Row = dict[str, Any]


@pytest.fixture(scope="module", params=KINDS)
def journal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Filled]]:
    with filled_journal(request, request.param, tmp_path_factory.mktemp("journal"), FILL) as found:
        yield found


@pytest.fixture(scope="module")
def rows(journal: tuple[Store, Filled]) -> list[Row]:
    """The rows of ``sessions``, those without an end completed from their calls."""
    store, made = journal
    with store.reading() as connection:
        found = [dict(row) for row in made.rows]
        for row in found:
            if row["ended_at"] is None:
                row.update(_from_calls(connection, row["id"]))
    return found


def _from_calls(connection: Connection, session: int) -> Row:
    steps = connection.execute(select(calls).where(calls.c.session == session).order_by(calls.c.number)).all()
    rewards = [step.reward for step in steps if step.reward is not None]
    faults = [step.fault for step in steps if step.fault is not None]
    return {
        "calls": len(steps),
        "faults": len(faults),
        "fault": faults[0] if faults else None,
        "reward": rewards[-1] if rewards else None,
        "reward_sum": sum(rewards) if rewards else None,
        "finished": any(step.finished for step in steps),
    }


def all_pages(connection: Connection, wanted: Filter, limit: int = 37) -> list[Any]:
    found: list[Any] = []
    before = None
    while True:
        page = trajectories(connection, wanted, limit, before)
        assert len(page.items) <= limit
        found += page.items
        if page.next is None:
            return found
        assert len(page.items) == limit
        before = page.next


def test_pages_show_every_session_once_newest_first(connection: Connection, rows: list[Row]) -> None:
    found = all_pages(connection, Filter())
    assert [each.id for each in found] == [str(row["id"]) for row in reversed(rows)]
    assert count(connection) == len(rows)


def test_a_page_holds_what_was_written_of_each_session(connection: Connection, rows: list[Row]) -> None:
    by_id = {str(row["id"]): row for row in rows}
    for each in all_pages(connection, Filter()):
        shown = each.model_dump(exclude={"id"})
        assert shown == {name: by_id[each.id][name] for name in shown}


def test_sessions_without_an_end_show_what_their_calls_came_to(
    connection: Connection, rows: list[Row]
) -> None:
    living = [each for each in trajectories(connection).items if each.ended_at is None]
    assert len(living) == FILL.open
    assert any(each.finished and each.reward is not None and each.calls for each in living)


FILTERS: list[tuple[Filter, Callable[[Row], bool]]] = [
    (Filter(environment="doors"), lambda row: row["environment"] == "doors"),
    (Filter(run="beta/2 ü"), lambda row: row["run"] == "beta/2 ü"),
    (Filter(run="beta/2 ü", step=3), lambda row: row["run"] == "beta/2 ü" and row["step"] == 3),
    (Filter(split="test"), lambda row: row["split"] == "test"),
    (
        Filter(environment="guess", task="train:3"),
        lambda row: (row["environment"], row["task"]) == ("guess", "train:3"),
    ),
    (Filter(owner="ada"), lambda row: row["owner"] == "ada"),
    (Filter(reward_min=0.5), lambda row: row["reward"] is not None and row["reward"] >= 0.5),
    (Filter(reward_max=0.5), lambda row: row["reward"] is not None and row["reward"] <= 0.5),
    (Filter(reward_min=0.1, reward_max=0.9), lambda row: False),
    (Filter(fault="any"), lambda row: row["fault"] is not None),
    (Filter(fault="none"), lambda row: row["fault"] is None),
    (Filter(fault="worker_lost"), lambda row: row["fault"] == "worker_lost"),
    (Filter(finished=True), lambda row: row["finished"]),
    (Filter(finished=False), lambda row: not row["finished"]),
    (
        Filter(since=START + 700, until=START + 1400),
        lambda row: START + 700 <= row["started_at"] < START + 1400,
    ),
    (
        Filter(environment="doors", run="alpha", owner="bob", finished=True, reward_min=1, fault="none"),
        lambda r: (r["environment"], r["run"], r["owner"], r["finished"], r["reward"], r["fault"])
        == ("doors", "alpha", "bob", True, 1.0, None),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "holds"), FILTERS, ids=lambda each: repr(each) if isinstance(each, Filter) else ""
)
def test_a_filter_keeps_those_sessions_for_which_it_holds(
    connection: Connection, rows: list[Row], wanted: Filter, holds: Callable[[Row], bool]
) -> None:
    expected = [str(row["id"]) for row in reversed(rows) if holds(row)]
    assert [each.id for each in all_pages(connection, wanted, 17)] == expected
    assert count(connection, wanted) == len(expected)


def test_nothing_is_found_for_names_that_nobody_has(connection: Connection) -> None:
    for wanted in (
        Filter(run="'; DROP TABLE sessions; --"),
        Filter(environment="%"),
        Filter(fault="nonsense"),
    ):
        assert trajectories(connection, wanted).items == []


def test_a_cursor_that_is_no_number_is_refused(connection: Connection) -> None:
    with pytest.raises(ValueError, match="nonsense"):
        trajectories(connection, before="nonsense")


def test_a_trajectory_has_every_call_in_the_order_of_its_results(
    connection: Connection, rows: list[Row]
) -> None:
    for row in rows[::29]:
        found = trajectory(connection, str(row["id"]))
        assert found is not None
        assert (found.sid, found.reward, found.labels) == (
            row["sid"], row["reward"], json.loads(row["labels"]) if row["labels"] else None
        )  # fmt: skip
        assert [step.number for step in found.steps] == list(range(1, row["calls"] + 1))
        assert sum(step.reward or 0 for step in found.steps) == (row["reward_sum"] or 0)
        assert found.request == {
            "key": row["environment"], "split": row["split"], "index": row["task_index"]
        }  # fmt: skip
        assert found.prompt is not None and found.prompt[0].type == "text"
        assert found.prompt[0].text.startswith(f"Task {row['task_index']} of {row['environment']}: ")
        assert found.tools is not None and [tool["name"] for tool in found.tools] == ["answer", "look"]
        assert found.messages is None


def test_steps_distinguish_answers_refusals_and_faults(connection: Connection, rows: list[Row]) -> None:
    kinds = set()
    for row in rows:
        found = trajectory(connection, row["id"])
        assert found is not None
        for step in found.steps:
            kind = "fault" if step.fault else "refused" if step.error else "answer"
            kinds.add(kind)
            assert bool(step.blocks) == (kind == "answer")
            assert (step.message is not None) == (step.fault_id is not None) == (kind == "fault")
            assert step.reason == ("input_validation" if kind == "refused" else None)
            assert set(step.input) == {"text", "n"}
    assert kinds == {"answer", "refused", "fault"}


def test_large_results_and_images_are_whole(connection: Connection, rows: list[Row]) -> None:
    blocks = [
        block
        for row in rows
        for step in getattr(trajectory(connection, row["id"]), "steps")  # noqa: B009  # it may be None
        for block in step.blocks
    ]
    assert any(block.type == "image" and block.mimeType == "image/png" for block in blocks)
    assert any(block.type == "text" and len(block.text.split()) == 600 for block in blocks)


def test_a_trajectory_is_its_owners_alone(connection: Connection, rows: list[Row]) -> None:
    row = next(row for row in rows if row["owner"] == "ada")
    assert trajectory(connection, row["id"], owner="ada") is not None
    assert trajectory(connection, row["id"], owner="bob") is None
    assert trajectory(connection, 17) is None


def test_scores_messages_and_a_call_that_never_ended_are_shown(journal: tuple[Store, Filled]) -> None:
    store, made = journal
    session = made.ids[5]
    with store.reading() as connection:
        transaction = connection.begin_nested()
        number = len(connection.execute(select(calls.c.id).where(calls.c.session == session)).all())
        common = {
            "session": session,
            "task_id": "t",
            "started_at": START,
            "discarded": False,
            "finished": False,
        }
        connection.execute(
            insert(calls),
            [
                {"id": 71, "number": None, "kind": "call", "name": "slow", "input": '{"a":1}',
                 "result": None, **common},
                {"id": 72, "number": number + 1, "kind": "score_group", "name": "score_group", "input": "{}",
                 "result": '{"scores":[{"reward":0.5,"metadata":null}]}', **common},
            ],
        )  # fmt: skip
        connection.execute(
            insert(scores),
            [
                {"call": 72, "candidate": 1, "session": session, "reward": 0.25, "detail": None},
                {
                    "call": 72,
                    "candidate": 0,
                    "session": session,
                    "reward": 0.5,
                    "detail": '{"metadata":{"why":"b"}}',
                },
            ],
        )
        message = {"role": "user", "blocks": [{"type": "text", "text": "hi", "detail": None}], "detail": None}
        connection.execute(insert(prompts), [{"session": session, "kind": "messages", "text": None}])
        large = {"row": session, "field": "messages", "session": session, "data": pack(json.dumps([message]))}
        connection.execute(insert(values), [large])
        found = trajectory(connection, session)
        transaction.rollback()
    assert found is not None
    assert found.messages == [message]
    score, never = found.steps[-2:]
    assert [(each.candidate, each.reward, each.detail) for each in score.scores] == [
        (0, 0.5, {"metadata": {"why": "b"}}),
        (1, 0.25, None),
    ]
    assert (never.name, never.number, never.input, never.blocks) == ("slow", None, {"a": 1}, [])


def test_a_damaged_value_does_not_hide_the_rest(journal: tuple[Store, Filled]) -> None:
    store, made = journal
    with store.reading() as connection:
        transaction = connection.begin_nested()
        some = next(id for id in made.ids if (one := trajectory(connection, id)) and one.steps[0].blocks)
        first = select(calls.c.id).where(calls.c.session == some, calls.c.number == 1).scalar_subquery()
        connection.execute(
            calls.update().where(calls.c.id == first).values(result='{"ok":tr', input="nothing")
        )
        found = trajectory(connection, some)
        transaction.rollback()
    assert found is not None
    assert found.steps[0].input == "nothing"
    assert [block.text for block in found.steps[0].blocks if block.type == "text"] == ['{"ok":tr']


def test_evaluations_are_listed_without_episodes_and_read_whole(journal: tuple[Store, Filled]) -> None:
    import zlib

    store, _ = journal
    report = {"format": 1, "name": "n", "episodes": [{"task": "test:1"}]}
    with store.reading() as connection:
        transaction = connection.begin_nested()
        for id, owner in ((1, "ada"), (2, "bob"), (3, "ada")):
            row = {
                "id": id, "name": f"n{id}", "run": "r", "owner": owner, "environment": "e", "split": None,
                "model": "m",
                "started_at": 1.0, "ended_at": None, "summary": '{"n_tasks":3}',
                "report": zlib.compress(json.dumps(report).encode()),
            }  # fmt: skip
            connection.execute(insert(evaluations_table), [row])
        assert [each.name for each in evaluations(connection)] == ["n3", "n2", "n1"]
        assert [each.id for each in evaluations(connection, owner="ada", before="3")] == ["1"]
        assert evaluations(connection)[0].summary == {"n_tasks": 3}
        assert evaluation(connection, "2") == {**report, "id": "2", "owner": "bob"}
        assert evaluation(connection, "2", owner="ada") is None
        assert evaluation(connection, 9) is None
        transaction.rollback()


PAGES = [
    Filter(),
    Filter(environment="doors"),
    Filter(run="alpha"),
    Filter(run="alpha", step=3),
    Filter(environment="doors", task="train:3"),
    Filter(owner="ada"),
    Filter(fault="any", reward_min=0.5, finished=True),
]


@pytest.mark.parametrize("wanted", PAGES, ids=repr)
def test_no_page_sorts_the_whole_table_or_walks_through_another(
    journal: tuple[Store, Filled], wanted: Filter
) -> None:
    store, made = journal
    if not store.is_sqlite:
        pytest.skip("plans of SQLite")
    with store.reading() as connection:
        statements: list[tuple[str, Any]] = []

        @event.listens_for(connection, "before_cursor_execute")
        def note(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
            statements.append((statement, parameters))

        trajectories(connection, wanted, 10, made.ids[-50])
        trajectory(connection, made.ids[3])
        event.remove(connection, "before_cursor_execute", note)
        asked = list(statements)
        assert len(asked) >= 6
        for statement, parameters in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            details = [str(row[3]) for row in plan]
            assert not [each for each in details if each.startswith("SCAN") and "VIRTUAL" not in each], (
                details
            )
            if "LIMIT" in statement and wanted.task is None and wanted.step is None:
                assert not [each for each in details[:1] if "TEMP B-TREE" in each], details


def test_a_journal_of_the_first_tables_gets_the_indexes_of_the_pages(tmp_path: Path) -> None:
    from alembic import command
    from alembic.config import Config

    path = tmp_path / "journal.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as old:
        config = Config()
        config.set_main_option("script_location", str(Path(migrations.__file__).parent))
        config.attributes["connection"] = old
        command.upgrade(config, "0001")
        assert "sessions_figures" not in _indexes(old)
        made = fill(old, Fill(sessions=20))
    engine.dispose()
    store = empty_journal(path)
    try:
        with store.reading() as connection:
            assert {"sessions_figures", "sessions_unended", "sessions_owner"} <= _indexes(connection)
            found = [each.id for each in trajectories(connection).items]
        assert found == [str(id) for id in reversed(made.ids)]
    finally:
        store.close()


def _indexes(connection: Connection) -> set[str]:
    return {str(each["name"]) for each in inspect(connection).get_indexes("sessions")}
