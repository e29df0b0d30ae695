"""Means and intervals of rewards of any size: by hand, and as both databases sum them up."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orsay.journal.database import Store
from orsay.journal.ids import new_id
from orsay.journal.read.intervals import Moments, mean_interval
from orsay.journal.read.open_sessions import ending
from orsay.journal.read.query import runs, series, task_map, trajectories
from orsay.journal.schema import calls, sessions
from orsay_protocol.student import t_quantile
from sqlalchemy import Connection, insert, select

from tests.journal.fill import Fill, Filled
from tests.journal.journals import KINDS, filled_journal

VALUE = st.one_of(
    st.floats(-1e300, 1e300),
    st.floats(-10, 10).map(lambda value: value + 1e15),
    st.integers(0, 5).map(lambda value: 1e9 + value),
    st.sampled_from([0.0, 1.0]),
)
VALUES = st.one_of(
    st.lists(VALUE, max_size=30),
    st.lists(st.floats(-10, 10).map(lambda value: value + 1e15), max_size=30),
    st.lists(st.integers(0, 5).map(lambda value: 1e9 + value), max_size=30),
)

SUBNORMAL = 1e-320  # numbers as small as this keep few digits


def exact_mean(values: Sequence[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction()) / len(values)


def exact_spread(values: Sequence[float]) -> float:
    """The root of the summed squared distances from the mean, in fractions."""
    if len(values) < 2:
        return 0.0
    middle = exact_mean(values)
    apart = [Fraction(value) - middle for value in values]
    scale = max(map(abs, apart))
    return math.sqrt(sum(each * each / scale / scale for each in apart)) * float(scale) if scale else 0.0


def assert_exact(found: Moments, values: Sequence[float]) -> None:
    assert found.n == len(values)
    if not values:
        return
    near = max(map(abs, values)) * 1e-14 + SUBNORMAL
    assert found.mean == pytest.approx(float(exact_mean(values)), abs=near)
    assert found.spread == pytest.approx(exact_spread(values), rel=1e-9, abs=near)


@given(VALUES)
def test_moments_are_those_of_fractions(values: list[float]) -> None:
    assert_exact(Moments.of(values), values)


@given(VALUES, st.data())
def test_any_parts_put_together_are_the_whole(values: list[float], data: st.DataObject) -> None:
    numbers = st.lists(st.integers(0, 4), min_size=len(values), max_size=len(values))
    part_of = data.draw(numbers)
    parts: dict[int, list[float]] = {}
    for part, value in zip(part_of, values, strict=True):
        parts.setdefault(part, []).append(value)
    assert_exact(sum(map(Moments.of, parts.values()), start=Moments()), values)


@given(VALUES)
def test_one_after_the_other_is_the_whole(values: list[float]) -> None:
    assert_exact(sum((Moments(1, value) for value in values), start=Moments()), values)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_sums_give_the_spread_or_that_they_do_not(values: list[float]) -> None:
    squares = sum(value * value for value in values)
    found = Moments.from_sums(len(values), sum(values), squares, min(values), max(values))
    if found is not None:
        assert found.mean == pytest.approx(statistics.fmean(values), abs=1e-9)
        assert found.spread == pytest.approx(exact_spread(values), rel=1e-6)


@given(st.lists(st.integers(0, 100_000), max_size=40))
def test_sums_of_whole_numbers_are_exact(values: list[int]) -> None:
    found = Moments.from_whole_sums(len(values), sum(values), sum(value**2 for value in values))
    assert_exact(found, [float(value) for value in values])


def test_a_spread_beyond_a_float_leaves_the_mean() -> None:
    largest = 1.7976931348623157e308
    for found in (
        Moments.of([largest, largest, -largest]),
        Moments(1, largest) + Moments(1, largest) + Moments(1, -largest),
    ):
        interval = mean_interval(found)
        assert interval is not None and (interval.low, interval.high) == (None, None)
        assert interval.mean == pytest.approx(largest / 3, rel=1e-12)


# Pages


@pytest.fixture(scope="module", params=KINDS)
def journal(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Filled]]:
    what = Fill(sessions=40, unlabelled=0)
    with filled_journal(request, request.param, tmp_path_factory.mktemp("journal"), what) as found:
        yield found


@pytest.fixture
def connection(journal: tuple[Store, Filled]) -> Iterator[Connection]:
    """One whose changes are taken back."""
    with journal[0].reading() as connection:
        transaction = connection.begin_nested()
        yield connection
        transaction.rollback()


def record(connection: Connection, rewards: Sequence[float], **more: object) -> None:
    """Sessions of the run ``by hand``, all on one task."""
    row = connection.execute(select(sessions).where(sessions.c.ended_at.is_not(None)).limit(1)).one()
    for reward in rewards:
        changes = {
            "id": new_id(), "run": "by hand", "step": 0, "calls": 1, "reward": reward, "fault": None,
            "finished": True, "environment": "by hand", "owner": "",
        }  # fmt: skip
        connection.execute(insert(sessions).values(row._asdict() | changes | more))


REWARDS = {
    "near each other, far from 0": [1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3, 1e9 + 4, 1e9 + 5],
    "all the same, far from 0": [1e15 + 1] * 6,
    "nearly all the same": [1e15] * 6 + [1e15 + 2],
    "squares beyond a float": [1e200, 2e200, 3e200],
    "sums beyond a float": [1e308] * 3 + [1.5e308],
    "the largest": [1.7976931348623157e308] * 4,
    "squares that vanish": [1e-200, 2e-200, 4e-200],
    "the least": [5e-324, 5e-324, 1e-323],
    "least, and not the same": [5e-324, 1e-323, 2e-323],
    "the least among others": [5e-324, 1e-200, 0.0, 1.0],
    "from end to end": [-1.5e308, 1.5e308, 0.0],
    "large beside small": [1e160, 1.0, -1.0, 0.5],
    "ordinary": [0.0, 1.0, 1.0, 0.25],
}


@pytest.mark.parametrize("name", REWARDS)
@pytest.mark.parametrize("step", [0, None])
def test_pages_show_the_exact_interval(connection: Connection, name: str, step: int | None) -> None:
    rewards = REWARDS[name]
    record(connection, rewards, step=step)
    record(connection, [0.0, 1.0], run="another", step=step)
    size = max(map(abs, rewards))
    exact = exact_mean(rewards)
    half = t_quantile(len(rewards) - 1) * (
        exact_spread(rewards) / math.sqrt(len(rewards) * (len(rewards) - 1))
    )
    [run] = [each for each in runs(connection) if each.run == "by hand"]
    shown = series(connection, "by hand")
    [point] = shown.points
    [cell] = [each for each in task_map(connection) if each.environment == "by hand" and each.n != 2]
    tolerance = max(size * 1e-15, 1e-180)
    for found in (run, point):
        assert found.reward_mean == pytest.approx(float(exact), abs=tolerance)
        if math.isfinite(half) and abs(exact) + Fraction(half) <= Fraction(1.7976931348623157e308):
            assert found.reward_mean is not None
            assert found.reward_low is not None and found.reward_high is not None
            assert found.reward_high - found.reward_mean == pytest.approx(half, rel=1e-6, abs=tolerance)
            assert found.reward_mean - found.reward_low == pytest.approx(half, rel=1e-6, abs=tolerance)
        else:
            assert (found.reward_low, found.reward_high) == (None, None)
    played = float(exact_mean([*rewards, 0.0, 1.0]))
    assert cell.reward_mean == pytest.approx(played, rel=1e-14, abs=size * 1e-15)
    assert sum(shown.histogram.counts) == len(rewards)
    assert sorted(shown.histogram.edges) == shown.histogram.edges
    assert all(map(math.isfinite, shown.histogram.edges))


def test_many_points_whose_sums_say_nothing_have_their_intervals(connection: Connection) -> None:
    for step in (None, *range(5)):
        record(connection, [1e9 + step if step else 1e9, 1e9 + 10], step=step)
    points = series(connection, "by hand").points
    assert [point.step for point in points] == [0, 1, 2, 3, 4]
    for point in points:
        assert point.reward_low is not None and point.reward_mean is not None and point.step is not None
        half = t_quantile(1) * (10 - point.step) / 2
        assert point.reward_mean - point.reward_low == pytest.approx(half, rel=1e-6)


def test_sessions_that_still_live_are_put_to_those_that_ended(connection: Connection) -> None:
    record(connection, [1e9, 1e9 + 2])
    record(connection, [0.0], ended_at=None, reward=None, finished=None)
    alive = connection.scalar(
        select(sessions.c.id).where(sessions.c.run == "by hand", sessions.c.ended_at.is_(None))
    )
    call = connection.execute(select(calls).limit(1)).one()
    changes = {
        "id": new_id(),
        "session": alive,
        "reward": 1e9 + 4,
        "finished": True,
        "discarded": False,
        "fault": None,
    }
    connection.execute(insert(calls).values(call._asdict() | changes))
    [run] = [each for each in runs(connection) if each.run == "by hand"]
    wanted = mean_interval(Moments.of([1e9, 1e9 + 2, 1e9 + 4]))
    assert wanted is not None and run.reward_mean == wanted.mean
    assert (run.reward_low, run.reward_high) == (wanted.low, wanted.high)
    assert run.reward_high is not None and run.reward_high - run.reward_mean == pytest.approx(
        t_quantile(2) * 2 / math.sqrt(3), rel=1e-6
    )


def test_an_infinite_sum_of_older_servers_is_not_shown(connection: Connection) -> None:
    record(connection, [1.0], reward_sum=math.inf)
    [summary] = [each for each in trajectories(connection).items if each.run == "by hand"]
    assert (summary.reward, summary.reward_sum) == (1.0, None)


def test_a_session_that_a_killed_server_left_has_an_end_whatever_its_rewards(connection: Connection) -> None:
    record(connection, [0.0], ended_at=None, reward=None, finished=None)
    id = connection.execute(select(sessions.c.id).where(sessions.c.run == "by hand")).scalar_one()
    call = connection.execute(select(calls).limit(1)).one()
    for number, reward in enumerate((1e308, 1e308, 2.0), 1):
        changes = {"id": new_id(), "session": id, "number": number, "reward": reward, "discarded": False}
        connection.execute(insert(calls).values(call._asdict() | changes))
    end = ending(connection, id, 1.0, "the server died", "worker_lost")
    assert (end.reward, end.reward_sum, end.calls) == (2.0, None, 3)
    [summary] = [each for each in trajectories(connection).items if each.run == "by hand"]
    assert (summary.reward, summary.reward_sum) == (2.0, None)
