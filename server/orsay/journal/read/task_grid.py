"""The map of tasks: how often each was played to an end, and solved."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, select

from ..schema import sessions
from .aggregates import OpenTotals, Scores, open_sessions, sums
from .filters import Filter
from .models import TaskCell

__all__ = ["task_map"]

_MANY = 20_000  # sessions of a run; more are read faster by an index scan than one by one
_SUMS = ("n", "scored", "rewards", "solved", "last_at")
_c = sessions.c


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
    """Each task that was played, by environment, split and index; at most ``limit``.

    Trials are left out, unless ``run`` is one.
    """
    wanted = Filter(environment=environment, run=run, split=split, owner=owner, trials=False)
    found: dict[tuple[str, str], _Task] = defaultdict(_Task)
    keys = (_c.environment, _c.task, _c.split, _c.task_index)  # as an index has them: nothing is sorted
    by_run = run is not None and not _is_large(connection, run)
    summed = sums(
        connection, wanted, success, _SUMS, *keys, by=("environment", "run") if by_run else ("environment",)
    )
    for row in connection.execute(summed):
        found[row.environment, row.task].add(row)
    for row, now in open_sessions(connection, wanted):
        if now.finished:
            found[row.environment, row.task].add_open(row, now, success)
    cells = [_cell(*key, task) for key, task in found.items()]
    cells.sort(key=lambda c: (c.environment, c.split or "", c.task_index is None, c.task_index or 0, c.task))
    return cells[:limit]


@dataclass(slots=True)
class _Task(Scores):
    """Sums over the sessions of one task."""

    split: str | None = None
    task_index: int | None = None

    def add(self, row: Row[Any]) -> None:
        """Add a row of sums."""
        self.add_scores(row)
        self.split, self.task_index = row.split, row.task_index

    def add_open(self, row: Row[Any], now: OpenTotals, success: float) -> None:
        """Add an open session whose episode is finished."""
        self.add_finished(row.started_at, now, success)
        self.split, self.task_index = row.split, row.task_index


def _is_large(connection: Connection, run: str) -> bool:
    """True if SQLite should scan an index instead of looking up each session."""
    if connection.dialect.name != "sqlite":
        return False
    return connection.scalar(select(_c.id).where(_c.run == run).offset(_MANY).limit(1)) is not None


def _cell(environment: str, task: str, total: _Task) -> TaskCell:
    return TaskCell(
        environment=environment,
        task=task,
        split=total.split,
        task_index=total.task_index,
        n=total.n,
        solved=total.solved,
        reward_mean=total.reward_mean,
        last_at=total.last_at,
    )
