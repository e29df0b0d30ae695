"""Time series of one run: over its steps, else over time, with histograms of its rewards."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, and_, case, cast, func, select

from ..schema import sessions
from .aggregates import BY_RUN, ENDED, OF_REWARDS, PLAYED, Live, Total, add_spreads, open_sessions, sums
from .filters import Filter, conditions
from .models import Histogram, Point, Series

__all__ = ["series"]

_STRETCHES = 60  # points of a run without steps
_BINS = 20
_NOTHING = 1e-300  # a range that cannot be divided
_WIDEST = sys.float_info.max / 4  # rewards beyond are in the outermost bins
_OF_STRETCH = ("n", *OF_REWARDS, "solved", "played", "length", "length_squares")
_OF_STEP = (*_OF_STRETCH, "first_at")
_c = sessions.c


def series(
    connection: Connection,
    run: str,
    *,
    environment: str | None = None,
    split: str | None = None,
    owner: str | None = None,
    success: float = 1.0,
) -> Series:
    """A point for each step of the run; without steps, one for each of some sixty stretches of its time."""
    wanted = Filter(run=run, environment=environment, split=split, owner=owner)
    whole = _bounds(connection, wanted)
    lives = list(open_sessions(connection, wanted))
    if whole.steps or any(row.step is not None for row, _ in lives):
        points = _over_steps(connection, wanted, success, lives)
    else:
        points = _over_time(connection, wanted, success, lives, whole)
    return Series(run=run, points=points, histogram=_histogram(connection, wanted, whole))


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds over ended sessions; ``low`` and ``high`` are rewards of those without a fault."""

    first_at: float | None
    last_at: float | None
    steps: int
    low: float | None
    high: float | None


def _bounds(connection: Connection, wanted: Filter) -> _Bounds:
    query = select(
        func.min(_c.started_at),
        func.max(_c.started_at),
        func.count(_c.step),
        func.min(_c.reward).filter(PLAYED),
        func.max(_c.reward).filter(PLAYED),
    )
    return _Bounds(*connection.execute(query.where(ENDED, *conditions(wanted, by=BY_RUN))).one())


def _over_steps(connection: Connection, wanted: Filter, success: float, lives: Sequence[Live]) -> list[Point]:
    """Sessions without a step are left out."""
    found: dict[int | None, Total] = defaultdict(Total)
    for row in connection.execute(sums(connection, wanted, success, _OF_STEP, _c.step)):
        found[row.step].add(row)
    add_spreads(connection, wanted, found, _c.step)
    for row, now in lives:
        found[row.step].add_open(row.started_at, now, success)
    return [_point(step, found[step]) for step in sorted(step for step in found if step is not None)]


def _over_time(
    connection: Connection, wanted: Filter, success: float, lives: Sequence[Live], whole: _Bounds
) -> list[Point]:
    """Points at equal distances of time, those without sessions left out."""
    if whole.first_at is None and not any(now.finished for _, now in lives):
        return []
    begun = (whole.first_at, whole.last_at, *(row.started_at for row, _ in lives))
    moments = [each for each in begun if each is not None]
    first_at = min(moments)
    width = max((max(moments) - first_at) / _STRETCHES, 1.0)
    stretch = _whole(connection, (_c.started_at - first_at) / width).label("stretch")
    found: dict[int, Total] = defaultdict(Total)
    for row in connection.execute(sums(connection, wanted, success, _OF_STRETCH, stretch)):
        found[row.stretch].add(row)
    add_spreads(connection, wanted, found, stretch)
    for row, now in lives:
        found[int((row.started_at - first_at) // width)].add_open(row.started_at, now, success)
    points = []
    for number, total in sorted(found.items()):
        total.first_at = first_at + number * width
        if total.n:
            points.append(_point(None, total))
    return points


def _histogram(connection: Connection, wanted: Filter, whole: _Bounds) -> Histogram:
    """Histogram of rewards of sessions that ended, lost ones left out."""
    if whole.low is None or whole.high is None:
        return Histogram(edges=[], counts=[])
    low, high = max(whole.low, -_WIDEST), min(whole.high, _WIDEST)
    if high - low <= _NOTHING:
        low, high = _around(whole.low)
    width = (high - low) / _BINS
    inside = case(  # no difference is beyond a float, and no quotient near 0: PostgreSQL refuses both
        (_c.reward >= high, float(_BINS - 1)),
        (_c.reward > low + width, (_c.reward - low) / width),
        else_=0.0,
    )
    number = _whole(connection, inside).label("bin")
    which = and_(ENDED, _c.reward.is_not(None), PLAYED, *conditions(wanted, by=BY_RUN))
    counts = [0] * _BINS
    for bin_, n in connection.execute(select(number, func.count()).where(which).group_by(number)):
        counts[min(max(bin_, 0), _BINS - 1)] += n
    return Histogram(edges=[low + width * i for i in range(_BINS)] + [high], counts=counts)


def _around(value: float) -> tuple[float, float]:
    """A slightly wider range, within a float's."""
    apart = max(0.5, abs(value) / 1e6)
    most = sys.float_info.max
    return max(value - apart, -most), min(value + apart, most)


def _whole(connection: Connection, value: ColumnElement[Any]) -> ColumnElement[int]:
    """Integer part of a value that is not negative.

    Casting rounds in PostgreSQL and truncates in SQLite, which may have been built without ``floor``.
    """
    return cast(value if connection.dialect.name == "sqlite" else func.floor(value), Integer)


def _point(step: int | None, total: Total) -> Point:
    return Point(step=step, at=total.first_at, n=total.n, **total.statistics())
