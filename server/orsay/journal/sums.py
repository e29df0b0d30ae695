"""Sums over many sessions: the database adds up those that ended, from an index alone. The few that did not
are looked at one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Float, Row, Select, and_, cast, func, null, or_, select

from .filters import Filter, among, conditions
from .schema import calls, sessions
from .sofar import SoFar, so_far
from .statistics import mean_interval, share_interval

__all__ = ["BY_RUN", "ENDED", "PLAYED", "Live", "Scores", "Total", "open_sessions", "sums"]

_c = sessions.c
ENDED = _c.ended_at.is_not(None)
PLAYED = or_(_c.fault.is_(None), _c.finished.is_(True))
"""Not lost, as ``filters.is_lost`` has it."""
BY_RUN = ("run",)
"""An index by the run has all columns that are summed up."""
Live: TypeAlias = tuple[Any, SoFar]
"""A session without an end, and what it has come to if its episode is finished."""


@dataclass(slots=True)
class Scores:
    """Sums of rewards over sessions. There may be thousands of these."""

    n: int = 0
    scored: int = 0
    rewards: float = 0.0
    solved: int = 0
    last_at: float = -math.inf

    def add_scores(self, row: Row[Any]) -> None:
        """A line of sums; those that nobody asked for stay as they are."""
        self.n += row.n
        self.scored += row.scored
        self.rewards += row.rewards or 0.0
        self.solved += row.solved
        if row.last_at is not None:
            self.last_at = max(self.last_at, row.last_at)

    def add_finished(self, started_at: float, now: SoFar, success: float) -> None:
        """A session that has not ended, but is finished."""
        self.n += 1
        if now.reward is not None:
            self.scored += 1
            self.rewards += now.reward
            self.solved += now.reward >= success
        self.last_at = max(self.last_at, started_at)


@dataclass(slots=True)
class Total(Scores):
    """Sums over the sessions of one run or step."""

    played: int = 0
    squares: float = 0.0
    length: int = 0
    length_squares: float = 0.0
    first_at: float = math.inf
    running: int = 0
    labelled: bool = False
    environments: set[str] = field(default_factory=set)
    steps: int = 0
    newest_steps: set[int] = field(default_factory=set)

    def add(self, row: Row[Any]) -> None:
        """As ``add_scores``, with everything else."""
        self.add_scores(row)
        self.played += row.played or 0
        self.squares += row.squares or 0.0
        self.length += row.length or 0
        self.length_squares += row.length_squares or 0.0
        if row.first_at is not None:
            self.first_at = min(self.first_at, row.first_at)

    def add_open(self, started_at: float, now: SoFar, success: float) -> None:
        """A session that has not ended."""
        self.first_at = min(self.first_at, started_at)
        if not now.finished:
            self.last_at = max(self.last_at, started_at)
            self.running += 1
            return
        self.add_finished(started_at, now, success)
        self.played += 1
        self.length += now.calls
        self.length_squares += now.calls**2
        if now.reward is not None:
            self.squares += now.reward**2

    def figures(self) -> dict[str, Any]:
        """What runs and points have in common."""
        reward = mean_interval(self.scored, self.rewards, self.squares)
        success = share_interval(self.solved, self.played)
        length = mean_interval(self.played, self.length, self.length_squares)
        fault_rate = share_interval(self.n - self.played, self.n)
        return {
            "reward_mean": reward and reward.mean,
            "reward_low": reward and reward.low,
            "reward_high": reward and reward.high,
            "success": success and success.mean,
            "success_low": success and success.low,
            "success_high": success and success.high,
            "length_mean": length and length.mean,
            "length_low": length and length.low,
            "length_high": length and length.high,
            "fault_rate": fault_rate and fault_rate.mean,
            "fault_low": fault_rate and fault_rate.low,
            "fault_high": fault_rate and fault_rate.high,
        }


def sums(
    wanted: Filter,
    success: float,
    names: Sequence[str],
    *keys: ColumnElement[Any],
    shown: Sequence[ColumnElement[Any]] = (),
    by: Sequence[str] = BY_RUN,
) -> Select[Any]:
    """For each combination of the keys, those sums over the sessions that ended, and NULL for others: each
    costs time. ``by`` as ``conditions`` has it.
    """
    length = cast(_c.calls, Float)  # the square of an integer may be more than PostgreSQL's integers hold
    sums: dict[str, ColumnElement[Any]] = {
        "n": func.count(),
        "played": func.count().filter(PLAYED),
        "scored": func.count(_c.reward).filter(PLAYED),
        "rewards": func.sum(_c.reward).filter(PLAYED),
        "squares": func.sum(_c.reward * _c.reward).filter(PLAYED),
        "solved": func.count().filter(and_(_c.reward >= success, PLAYED)),
        "length": func.sum(_c.calls).filter(PLAYED),
        "length_squares": func.sum(length * length).filter(PLAYED),
        "first_at": func.min(_c.started_at),
        "last_at": func.max(_c.started_at),
    }
    columns = [(each if name in names else null()).label(name) for name, each in sums.items()]
    return select(*keys, *shown, *columns).where(ENDED, *conditions(wanted, by=by)).group_by(*keys)


def open_sessions(connection: Connection, wanted: Filter) -> Iterator[Live]:
    """Sessions without an end; those whose episode is finished with what they have come to."""
    columns = (
        _c.id, _c.run, _c.labelled, _c.environment, _c.step, _c.started_at, _c.task, _c.split, _c.task_index
    )  # fmt: skip
    rows = connection.execute(select(*columns).where(_c.ended_at.is_(None), *conditions(wanted, by=()))).all()
    if not rows:
        return
    these = among(connection, [row.id for row in rows], calls.c.session)
    over = select(calls.c.session).where(these, calls.c.finished, ~calls.c.discarded).distinct()
    finished = connection.scalars(over).all()
    now = so_far(connection, among(connection, finished, calls.c.session)) if finished else {}
    for row in rows:
        yield row, now.get(row.id, SoFar())
