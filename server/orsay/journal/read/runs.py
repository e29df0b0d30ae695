"""Statistics of runs: see ``series`` for their steps, and ``task_grid`` for tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, desc, func, select

from ..schema import sessions
from .aggregates import BY_RUN, ENDED, OF_REWARDS, Total, add_spreads, open_sessions, sums
from .filters import Filter, conditions
from .models import RunSummary

__all__ = ["runs"]

_c = sessions.c
_SUMS = ("n", *OF_REWARDS, "solved", "last_at", "played", "length", "first_at")


def runs(
    connection: Connection, limit: int = 100, owner: str | None = None, success: float = 1.0
) -> list[RunSummary]:
    """The runs with the newest sessions first. A reward of ``success`` or more is a success."""
    wanted = Filter(owner=owner)
    lives = list(open_sessions(connection, wanted))
    found: dict[str, Total] = {}
    summed = sums(connection, wanted, success, _SUMS, _c.run, shown=_of_run(connection))
    _add_runs(connection, summed.order_by(desc("last_at")).limit(limit), found)
    others = {row.run for row, _ in lives} - set(found)
    if others:
        _add_runs(connection, summed.where(_c.run.in_(others)), found)
    add_spreads(connection, wanted, found, _c.run)
    for row, now in lives:
        total = found.setdefault(row.run, Total())
        total.add_open(row.started_at, now, success)
        total.labelled = total.labelled or row.labelled
        total.environments.add(row.environment)
        if row.step is not None:
            total.newest_steps.add(row.step)
    newest = dict(sorted(found.items(), key=lambda each: each[1].last_at, reverse=True)[:limit])
    _add_newest_steps(connection, wanted, newest)
    return [_run(run, total) for run, total in newest.items()]


def _of_run(connection: Connection) -> list[ColumnElement[Any]]:
    """Facts of a run beside its sums."""
    return [
        func.max(case((_c.labelled, 1), else_=0)).label("labelled"),
        func.count(_c.step.distinct()).label("steps"),
        _distinct(connection, _c.environment).label("environments"),
    ]


def _distinct(connection: Connection, column: ColumnElement[str]) -> ColumnElement[Any]:
    """All values of a group, as a list or as JSON."""
    if connection.dialect.name == "sqlite":
        return func.json_group_array(column.distinct())
    return func.array_agg(column.distinct())


def _add_runs(connection: Connection, summed: Select[Any], found: dict[str, Total]) -> None:
    for row in connection.execute(summed):
        total = found.setdefault(row.run, Total())
        total.add(row)
        total.labelled = bool(row.labelled)
        total.steps = row.steps
        names = row.environments
        total.environments.update(json.loads(names) if isinstance(names, str) else names)


def _add_newest_steps(connection: Connection, wanted: Filter, found: Mapping[str, Total]) -> None:
    """Count steps of which no session has ended yet."""
    begun = {run: total.newest_steps for run, total in found.items() if total.newest_steps}
    if not begun:
        return
    steps = set().union(*begun.values())
    which = (ENDED, _c.run.in_(begun), _c.step.in_(steps), *conditions(wanted, by=BY_RUN))
    known = {
        (run, step) for run, step in connection.execute(select(_c.run, _c.step).where(*which).distinct())
    }
    for run, newest in begun.items():
        found[run].steps += sum((run, step) not in known for step in newest)


def _run(run: str, total: Total) -> RunSummary:
    return RunSummary(
        run=run,
        labelled=total.labelled,
        environments=sorted(total.environments),
        first_at=total.first_at,
        last_at=total.last_at,
        episodes=total.n + total.running,
        running=total.running,
        steps=total.steps,
        **{name: each for name, each in total.statistics().items() if name in RunSummary.model_fields},
    )
