"""Figures of many sessions together: of runs, of the steps of a run, of tasks.

The database sums up the sessions that ended. The few that did not are looked at one by one; those whose
episode has finished count as ended.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, Row, and_, case, cast, func, not_, select

from .filters import Filter, conditions, is_lost
from .schema import calls, sessions
from .sofar import SoFar, so_far
from .statistics import mean_interval, share_interval
from .trajectory import Histogram, Point, RunSummary, Series, TaskCell

__all__ = ["runs", "series", "task_map"]

_STRETCHES = 60  # points of a run without steps
_BINS = 20
_c = sessions.c
_ENDED = _c.ended_at.is_not(None)


@dataclass(slots=True)
class _Total:
    """Sums over the sessions of one run, step or task."""

    n: int = 0
    lost: int = 0
    scored: int = 0
    rewards: float = 0.0
    squares: float = 0.0
    solved: int = 0
    length: int = 0
    first_at: float = math.inf
    last_at: float = -math.inf
    running: int = 0
    labelled: bool = False
    environments: set[str] = field(default_factory=set)
    steps: int = 0
    newest_steps: set[int | None] = field(default_factory=set)

    def add(self, row: Row[Any]) -> None:
        """A line of sums, as ``_sums`` has its columns."""
        self.n += row.n
        self.lost += row.lost
        self.scored += row.scored
        self.rewards += row.rewards or 0.0
        self.squares += row.squares or 0.0
        self.solved += row.solved
        self.length += row.length or 0
        self._between(row.first_at, row.last_at)

    def add_open(self, started_at: float, now: SoFar, success: float) -> None:
        """A session that has not ended."""
        self._between(started_at, started_at)
        if not now.finished:
            self.running += 1
            return
        self.n += 1
        self.length += now.calls
        if now.reward is not None:
            self.scored += 1
            self.rewards += now.reward
            self.squares += now.reward**2
            self.solved += now.reward >= success

    def _between(self, first: float, last: float) -> None:
        self.first_at = min(self.first_at, first)
        self.last_at = max(self.last_at, last)

    def figures(self) -> dict[str, Any]:
        """What runs and points have in common."""
        played = self.n - self.lost
        reward = mean_interval(self.scored, self.rewards, self.squares)
        success = share_interval(self.solved, played)
        return {
            "reward_mean": reward and reward.mean,
            "reward_low": reward and reward.low,
            "reward_high": reward and reward.high,
            "success": success and success.mean,
            "success_low": success and success.low,
            "success_high": success and success.high,
            "length_mean": self.length / played if played else None,
            "fault_rate": self.lost / self.n if self.n else None,
        }


def runs(
    connection: Connection, limit: int = 100, owner: str | None = None, success: float = 1.0
) -> list[RunSummary]:
    """The runs with the newest sessions first. A reward of ``success`` or more is a success."""
    wanted = Filter(owner=owner)
    found: dict[str, _Total] = defaultdict(_Total)
    shown = (
        func.max(case((_c.labelled, 1), else_=0)).label("labelled"),
        func.count(_c.step.distinct()).label("steps"),
        _distinct(connection, _c.environment).label("environments"),
    )
    for row in _summed(connection, wanted, success, _c.run, shown=shown):
        total = found[row.run]
        total.add(row)
        total.labelled = bool(row.labelled)
        total.steps = row.steps
        names = row.environments
        total.environments.update(json.loads(names) if isinstance(names, str) else names)
    for row, now in _open(connection, wanted):
        total = found[row.run]
        total.add_open(row.started_at, now, success)
        total.labelled = total.labelled or row.labelled
        total.environments.add(row.environment)
        total.newest_steps.add(row.step)
    for run, total in found.items():
        total.steps += _unseen(connection, wanted, run, total.newest_steps - {None})
    newest = sorted(found.items(), key=lambda each: each[1].last_at, reverse=True)[:limit]
    return [_run(run, total) for run, total in newest]


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
    by_step: dict[int | None, _Total] = defaultdict(_Total)
    for row in _summed(connection, wanted, success, _c.step):
        by_step[row.step].add(row)
    for row, now in _open(connection, wanted):
        by_step[row.step].add_open(row.started_at, now, success)
    steps = sorted(step for step in by_step if step is not None)
    if steps:
        points = [_point(step, by_step[step]) for step in steps]
    else:
        points = _over_time(connection, wanted, success, by_step.get(None))
    return Series(run=run, points=points, histogram=_histogram(connection, wanted))


def task_map(
    connection: Connection,
    *,
    environment: str | None = None,
    run: str | None = None,
    split: str | None = None,
    owner: str | None = None,
    success: float = 1.0,
    limit: int = 10_000,
) -> list[TaskCell]:
    """Each task that was played, by environment, split and index; at most ``limit``."""
    wanted = Filter(environment=environment, run=run, split=split, owner=owner)
    found: dict[tuple[str, str], _Total] = defaultdict(_Total)
    places: dict[tuple[str, str], tuple[str | None, int | None]] = {}
    same = (func.min(_c.split).label("split"), func.min(_c.task_index).label("task_index"))
    for row in _summed(connection, wanted, success, _c.environment, _c.task, shown=same):
        found[row.environment, row.task].add(row)
        places[row.environment, row.task] = row.split, row.task_index
    for row, now in _open(connection, wanted):
        if now.finished:
            found[row.environment, row.task].add_open(row.started_at, now, success)
            places[row.environment, row.task] = row.split, row.task_index
    cells = [_cell(*key, *places[key], total) for key, total in found.items()]
    cells.sort(key=lambda c: (c.environment, c.split or "", c.task_index is None, c.task_index or 0, c.task))
    return cells[:limit]


def _summed(
    connection: Connection,
    wanted: Filter,
    success: float,
    *keys: ColumnElement[Any],
    shown: Sequence[ColumnElement[Any]] = (),
) -> Iterator[Row[Any]]:
    query = select(*keys, *shown, *_sums(success)).where(_ENDED, *conditions(wanted)).group_by(*keys)
    yield from connection.execute(query)


def _sums(success: float) -> list[ColumnElement[Any]]:
    lost = is_lost()
    scored = and_(_c.reward.is_not(None), not_(lost))
    return [
        func.count().label("n"),
        func.sum(case((lost, 1), else_=0)).label("lost"),
        func.sum(case((scored, 1), else_=0)).label("scored"),
        func.sum(case((scored, _c.reward), else_=0.0)).label("rewards"),
        func.sum(case((scored, _c.reward * _c.reward), else_=0.0)).label("squares"),
        func.sum(case((and_(scored, _c.reward >= success), 1), else_=0)).label("solved"),
        func.sum(case((lost, 0), else_=_c.calls)).label("length"),
        func.min(_c.started_at).label("first_at"),
        func.max(_c.started_at).label("last_at"),
    ]


def _open(connection: Connection, wanted: Filter) -> Iterator[tuple[Any, SoFar]]:
    """Sessions without an end, with what they have come to."""
    which = and_(_c.ended_at.is_(None), *conditions(wanted))
    columns = (
        _c.id, _c.run, _c.labelled, _c.environment, _c.step, _c.started_at, _c.task, _c.split, _c.task_index
    )  # fmt: skip
    rows = connection.execute(select(*columns).where(which)).all()
    if not rows:
        return
    now = so_far(connection, calls.c.session.in_(select(_c.id).where(which)))
    for row in rows:
        yield row, now.get(row.id, SoFar())


def _unseen(connection: Connection, wanted: Filter, run: str, steps: set[int | None]) -> int:
    """How many of these steps have no session that ended."""
    if not steps:
        return 0
    ended = select(_c.step).where(_ENDED, _c.run == run, _c.step.in_(steps), *conditions(wanted)).distinct()
    return len(steps) - len(connection.scalars(ended).all())


def _distinct(connection: Connection, column: ColumnElement[str]) -> ColumnElement[Any]:
    """All values of a group, as a list or as JSON."""
    if connection.dialect.name == "sqlite":
        return func.json_group_array(column.distinct())
    return func.array_agg(column.distinct())


def _run(run: str, total: _Total) -> RunSummary:
    return RunSummary(
        run=run,
        labelled=total.labelled,
        environments=sorted(total.environments),
        first_at=total.first_at,
        last_at=total.last_at,
        episodes=total.n + total.running,
        running=total.running,
        steps=total.steps,
        **_only(RunSummary.model_fields, total.figures()),
    )


def _point(step: int | None, total: _Total) -> Point:
    return Point(step=step, at=total.first_at, n=total.n, **total.figures())


def _cell(environment: str, task: str, split: str | None, task_index: int | None, total: _Total) -> TaskCell:
    return TaskCell(
        environment=environment,
        task=task,
        split=split,
        task_index=task_index,
        n=total.n,
        solved=total.solved,
        reward_mean=total.rewards / total.scored if total.scored else None,
        last_at=total.last_at,
    )


def _only(names: Mapping[str, Any], figures: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in figures.items() if name in names}


def _over_time(connection: Connection, wanted: Filter, success: float, whole: _Total | None) -> list[Point]:
    """Points at equal distances of time, those without sessions left out."""
    if whole is None or whole.n == 0:
        return []
    width = max((whole.last_at - whole.first_at) / _STRETCHES, 1.0)
    stretch = _whole(connection, (_c.started_at - whole.first_at) / width).label("stretch")
    found: dict[int, _Total] = defaultdict(_Total)
    for row in _summed(connection, wanted, success, stretch):
        found[row.stretch].add(row)
    for row, now in _open(connection, wanted):
        found[int((row.started_at - whole.first_at) // width)].add_open(row.started_at, now, success)
    points = []
    for number, total in sorted(found.items()):
        total.first_at = whole.first_at + number * width
        if total.n:
            points.append(_point(None, total))
    return points


def _histogram(connection: Connection, wanted: Filter) -> Histogram:
    """Of the rewards of sessions that ended, lost ones left out."""
    which = and_(_ENDED, _c.reward.is_not(None), not_(is_lost()), *conditions(wanted))
    low, high = connection.execute(select(func.min(_c.reward), func.max(_c.reward)).where(which)).one()
    if low is None:
        return Histogram(edges=[], counts=[])
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / _BINS
    number = _whole(connection, (_c.reward - low) / width).label("bin")
    counts = [0] * _BINS
    for bin_, n in connection.execute(select(number, func.count()).where(which).group_by(number)):
        counts[min(max(bin_, 0), _BINS - 1)] += n
    return Histogram(edges=[low + width * i for i in range(_BINS)] + [high], counts=counts)


def _whole(connection: Connection, value: ColumnElement[Any]) -> ColumnElement[int]:
    """What stands before the point of a value that is not negative. Casting rounds in PostgreSQL and cuts in
    SQLite, which may have been built without ``floor``."""
    return cast(value if connection.dialect.name == "sqlite" else func.floor(value), Integer)
