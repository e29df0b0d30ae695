"""Intervals against published values, and the metrics of runs against sums made by hand."""

from __future__ import annotations

import math
import statistics as python_statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from orsay.journal.database import Store
from orsay.journal.ids import new_id
from orsay.journal.read.intervals import Moments, mean_interval, share_interval
from orsay.journal.read.models import Summary
from orsay.journal.read.query import Filter, runs, series, task_map, trajectories
from orsay.journal.schema import sessions
from orsay_protocol.student import t_quantile
from sqlalchemy import Connection, insert, select

from tests.journal.fill import Fill, Filled
from tests.journal.journals import KINDS, filled_journal

# of any table of Student's distribution, such as NIST's Engineering Statistics Handbook, 1.3.6.7.2
T_TABLE = {
    1: 12.706,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    10: 2.228,
    29: 2.045,
    30: 2.042,
    60: 2.000,
    100: 1.984,
}
FILL = Fill(sessions=600, seed=3, owners=("ada", "bob"), open=12, faults=0.15, steps=6)


@pytest.mark.parametrize(("degrees", "expected"), T_TABLE.items())
def test_the_quantile_is_that_of_the_table(degrees: int, expected: float) -> None:
    assert t_quantile(degrees) == pytest.approx(expected, abs=0.0005)


def test_the_quantile_falls_to_that_of_the_normal_distribution() -> None:
    found = [t_quantile(degrees) for degrees in range(1, 400)]
    assert found == sorted(found, reverse=True)
    assert t_quantile(10**7) == pytest.approx(1.959964, abs=1e-5)


def test_the_interval_of_a_mean_is_students() -> None:
    values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
    found = mean_interval(Moments.of(values))
    assert found is not None and found.low is not None and found.high is not None
    half = 2.364624 * python_statistics.stdev(values) / math.sqrt(8)
    assert (found.mean, found.high - 5, 5 - found.low) == pytest.approx((5, half, half), abs=1e-5)


def test_nothing_is_claimed_of_one_value_or_none() -> None:
    assert mean_interval(Moments()) is None
    one = mean_interval(Moments.of([3.0]))
    assert one is not None and (one.mean, one.low, one.high) == (3, None, None)
    assert share_interval(0, 0) is None


# Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998)
@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_wilsons(hits: int, n: int, low: float, high: float) -> None:
    found = share_interval(hits, n)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.00006)
    mirrored = share_interval(n - hits, n)
    assert mirrored is not None
    assert (mirrored.low, mirrored.high) == pytest.approx((1 - high, 1 - low), abs=0.00006)


@pytest.fixture(scope="module", params=KINDS)
def journal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Filled]]:
    with filled_journal(request, request.param, tmp_path_factory.mktemp("journal"), FILL) as found:
        yield found


def everything(connection: Connection, wanted: Filter | None = None) -> list[Summary]:
    return trajectories(connection, wanted, 1000).items


class Expected:
    """The metrics of some sessions, made one by one."""

    def __init__(self, found: list[Summary], success: float = 1.0) -> None:
        over = [each for each in found if each.ended_at is not None or each.finished]
        self.running = len(found) - len(over)
        played = [each for each in over if each.fault is None or each.finished]
        rewards = [each.reward for each in played if each.reward is not None]
        solved = sum(reward >= success for reward in rewards)
        self.n = len(over)
        self.mean = python_statistics.fmean(rewards) if rewards else None
        self.success = solved / len(played) if played else None
        self.fault_rate = 1 - len(played) / len(over) if over else None
        self.length = python_statistics.fmean(each.calls for each in played) if played else None
        self.rewards = rewards
        self.solved = solved

    def matches(self, found: Any) -> None:
        assert found.reward_mean == pytest.approx(self.mean)
        assert found.success == pytest.approx(self.success)
        assert found.fault_rate == pytest.approx(self.fault_rate)
        assert found.length_mean == pytest.approx(self.length)


def test_runs_have_the_metrics_of_their_sessions(connection: Connection) -> None:
    by_run: dict[str, list[Summary]] = defaultdict(list)
    for each in everything(connection):
        by_run[each.run].append(each)
    found = runs(connection)
    newest = {run: max(each.started_at for each in some) for run, some in by_run.items()}
    assert [each.run for each in found] == sorted(newest, key=lambda run: newest[run], reverse=True)
    for run in found:
        some = by_run[run.run]
        expected = Expected(some)
        expected.matches(run)
        assert (run.episodes, run.running) == (len(some), expected.running)
        assert run.labelled == (run.run != "anyone 2026-05-28")
        assert run.environments == sorted({one.environment for one in some})
        assert run.steps == len({one.step for one in some if one.step is not None})
        assert (run.first_at, run.last_at) == (min(o.started_at for o in some), newest[run.run])
        assert run.reward_low is not None and run.reward_high is not None and run.reward_mean is not None
        assert run.reward_low < run.reward_mean < run.reward_high


def test_the_newest_runs_are_kept_when_there_are_more(connection: Connection) -> None:
    assert runs(connection, limit=2) == runs(connection)[:2]


def test_a_run_that_is_played_again_is_the_newest_with_all_its_sessions(connection: Connection) -> None:
    oldest = runs(connection)[-1]
    transaction = connection.begin_nested()
    one = select(sessions.c.id).where(sessions.c.run == oldest.run).limit(1).scalar_subquery()
    again = {"ended_at": None, "started_at": oldest.last_at + 1e6, "step": 1_000_000}
    connection.execute(sessions.update().where(sessions.c.id == one).values(**again))
    (found,) = runs(connection, limit=1)
    whole = runs(connection)
    transaction.rollback()
    assert found == whole[0]
    assert (found.run, found.episodes) == (oldest.run, oldest.episodes)
    assert found.steps >= 1


def test_an_owner_sees_metrics_of_their_own_sessions(connection: Connection) -> None:
    for owner in ("ada", "bob"):
        (found,) = [each for each in runs(connection, owner=owner) if each.run == "alpha"]
        expected = Expected(everything(connection, Filter(run="alpha", owner=owner)))
        expected.matches(found)
        assert found.episodes < len(everything(connection, Filter(run="alpha")))
        points = series(connection, "alpha", owner=owner).points
        assert sum(point.n for point in points) == expected.n
        cells = task_map(connection, run="alpha", owner=owner)
        assert sum(cell.n for cell in cells) == expected.n
    assert runs(connection, owner="nobody") == []


@pytest.mark.parametrize("environment", [None, "doors"])
def test_a_series_has_a_point_for_each_step(connection: Connection, environment: str | None) -> None:
    found = series(connection, "alpha", environment=environment)
    sessions_of = everything(connection, Filter(run="alpha", environment=environment))
    steps = sorted({each.step for each in sessions_of if each.step is not None})
    assert [point.step for point in found.points] == steps
    for point in found.points:
        some = [each for each in sessions_of if each.step == point.step]
        expected = Expected(some)
        expected.matches(point)
        assert point.n == expected.n
        assert point.at == min(each.started_at for each in some)
        if point.success is not None:
            assert point.success_low is not None and point.success_high is not None
            assert 0 <= point.success_low <= point.success <= point.success_high <= 1


def test_every_figure_of_a_point_has_its_interval(connection: Connection) -> None:
    # calls, reward, lost to a fault; lengths and rewards of the eight that were not have mean 5 and 0.5
    played: list[tuple[int, float | None, bool]] = [
        *zip((2, 4, 4, 4, 5, 5, 7, 9), (0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0), [False] * 8, strict=True),
        (40, 1.0, True),
        (3, None, True),
        (100_000, 1.0, False),  # of the next step, alone: its square is more than 32 bits hold
    ]
    row = connection.execute(select(sessions).where(sessions.c.ended_at.is_not(None)).limit(1)).one()
    transaction = connection.begin_nested()
    for place, (calls, reward, lost) in enumerate(played):
        changes = {
            "id": new_id(), "run": "by hand", "step": 0 if place < 10 else 1, "calls": calls,
            "reward": reward, "fault": "time_limit" if lost else None, "finished": not lost,
        }  # fmt: skip
        connection.execute(insert(sessions).values(row._asdict() | changes))
    first, alone = series(connection, "by hand").points
    transaction.rollback()
    # Student's with 7 degrees of freedom: 2.364624 * 2.13809 / sqrt(8), and with 0.534522 of the rewards
    assert first.n == 10
    assert first.length_mean == pytest.approx(5)
    assert (first.length_low, first.length_high) == pytest.approx((5 - 1.787488, 5 + 1.787488), abs=1e-5)
    assert (first.reward_low, first.reward_high) == pytest.approx((0.5 - 0.446873, 0.5 + 0.446873), abs=1e-5)
    # Wilson's: 4 of 8, and 2 of 10
    assert (first.success_low, first.success_high) == pytest.approx((0.215215, 0.784785), abs=1e-5)
    assert first.fault_rate == pytest.approx(0.2)
    assert (first.fault_low, first.fault_high) == pytest.approx((0.056682, 0.509838), abs=1e-5)
    assert (alone.n, alone.length_mean, alone.length_low, alone.length_high) == (1, 100_000, None, None)
    assert (alone.fault_rate, alone.fault_low) == (0, 0)
    assert alone.fault_high == pytest.approx(0.793451, abs=1e-5)


def test_success_is_what_the_reader_says(connection: Connection) -> None:
    low = series(connection, "alpha", success=0.0).points
    assert all(point.success == 1 for point in low if point.success is not None)
    assert all(point.success == 0 for point in series(connection, "alpha", success=7.0).points)


def test_a_run_without_steps_is_shown_over_time(connection: Connection) -> None:
    found = series(connection, "anyone 2026-05-28")
    ended = [each for each in everything(connection, Filter(run="anyone 2026-05-28")) if each.ended_at]
    assert len(found.points) > 5
    assert {point.step for point in found.points} == {None}
    assert [point.at for point in found.points] == sorted(point.at for point in found.points)
    assert sum(point.n for point in found.points) >= len(ended)


def test_a_histogram_counts_every_reward_once(connection: Connection) -> None:
    found = series(connection, "gamma").histogram
    ended = [each for each in everything(connection, Filter(run="gamma")) if each.ended_at is not None]
    rewards = Expected(ended).rewards
    assert len(found.edges) == len(found.counts) + 1
    assert (found.edges[0], found.edges[-1]) == (min(rewards), max(rewards))
    assert found.counts[0] == rewards.count(0.0)
    assert found.counts[-1] == rewards.count(1.0)
    assert sum(found.counts) == len(rewards)


def test_rewards_that_are_all_equal_have_a_histogram_too(connection: Connection) -> None:
    transaction = connection.begin_nested()
    connection.execute(sessions.update().where(sessions.c.run == "alpha").values(reward=0.25, fault=None))
    found = series(connection, "alpha").histogram
    transaction.rollback()
    assert found.edges[0] < 0.25 < found.edges[-1]
    assert [count for count in found.counts if count] == [sum(found.counts)]


def test_a_run_that_nobody_has_is_empty(connection: Connection) -> None:
    found = series(connection, "nobody's")
    assert (found.points, found.histogram.counts) == ([], [])
    assert task_map(connection, run="nobody's") == []


@pytest.mark.parametrize("run", [None, "gamma"])
def test_the_map_of_tasks_shows_what_was_solved(connection: Connection, run: str | None) -> None:
    by_task: dict[tuple[str, str], list[Summary]] = defaultdict(list)
    for each in everything(connection, Filter(environment="doors", run=run)):
        if each.ended_at is not None or each.finished:
            by_task[each.environment, each.task].append(each)
    found = task_map(connection, environment="doors", run=run)
    assert {(cell.environment, cell.task) for cell in found} == set(by_task)
    assert [(c.split, c.task_index) for c in found] == sorted((c.split, c.task_index) for c in found)
    for cell in found:
        expected = Expected(by_task[cell.environment, cell.task])
        assert (cell.n, cell.solved) == (expected.n, expected.solved)
        assert cell.reward_mean == pytest.approx(expected.mean)
        assert f"{cell.split}:{cell.task_index}" == cell.task
    only = task_map(connection, environment="doors", split="test", run=run)
    assert only == [cell for cell in found if cell.split == "test"]
    assert task_map(connection, environment="doors", run=run, limit=3) == found[:3]


TRIALS = ("orsay check 2026-05-28", "orsay play 2026-05-28", "playground")


@pytest.mark.parametrize("trial", TRIALS)
def test_the_map_of_tasks_leaves_trials_out_unless_they_are_named(connection: Connection, trial: str) -> None:
    before = task_map(connection)
    transaction = connection.begin_nested()
    row = connection.execute(select(sessions).where(sessions.c.task == "train:3").limit(1)).one()._mapping
    ended = {"fault": None, "reward": 0.0}
    rows = [{**row, **ended, "id": n, "run": trial, "ended_at": 2.0} for n in range(20)]
    rows += [{**row, **ended, "id": 20, "run": "orsay checkpoint", "ended_at": 2.0}]
    connection.execute(insert(sessions), rows)
    after, (cell,) = task_map(connection), task_map(connection, run=trial)
    listed = {each.run: each.episodes for each in runs(connection, limit=1_000)}
    transaction.rollback()
    assert sum(each.n for each in after) == sum(each.n for each in before) + 1
    assert (cell.n, cell.reward_mean) == (20, 0.0)
    assert listed[trial] == 20, "the run itself can be looked at"


def test_the_tasks_of_a_run_with_very_many_sessions_are_counted_all(connection: Connection) -> None:
    transaction = connection.begin_nested()
    row = connection.execute(select(sessions).where(sessions.c.task == "train:3").limit(1)).one()._mapping
    many = [
        {**row, "id": n, "run": "large", "ended_at": 2.0, "reward": 1.0, "fault": None} for n in range(20_500)
    ]
    connection.execute(insert(sessions), many)
    (cell,) = task_map(connection, run="large")
    transaction.rollback()
    assert (cell.task, cell.n, cell.solved, cell.reward_mean) == ("train:3", 20_500, 20_500, 1.0)


def test_metrics_are_summed_up_from_an_index_alone(journal: tuple[Store, Filled]) -> None:
    from sqlalchemy import event

    store, _ = journal
    if not store.is_sqlite:
        pytest.skip("plans of SQLite")
    with store.reading() as connection:
        asked: list[tuple[str, Any]] = []

        @event.listens_for(connection, "before_cursor_execute")
        def note(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
            asked.append((statement, parameters))

        runs(connection)
        series(connection, "alpha")
        series(connection, "anyone 2026-05-28", environment="doors")
        task_map(connection, environment="doors")
        task_map(connection, environment="doors", run="alpha")
        runs(connection, owner="ada")
        series(connection, "alpha", owner="ada")
        task_map(connection, owner="ada")
        event.remove(connection, "before_cursor_execute", note)
        summed = 0
        for statement, parameters in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            details = [str(row[3]) for row in plan]
            about = [each for each in details if each.startswith(("SCAN", "SEARCH"))]
            assert about
            if "sum(" in statement:
                summed += 1
                assert all("COVERING INDEX" in each for each in about), details
            else:
                assert not [each for each in about if each.startswith("SCAN") and "INDEX" not in each], (
                    details
                )
        assert summed >= 7
