"""Aggregates over sessions: sums of ended ones from a covering index; open ones are read one by one.

The variance of rewards comes from the sum of squares if that is precise enough; rewards with a small spread
far from 0, or too large to be squared, are fetched.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Row,
    Select,
    and_,
    between,
    case,
    cast,
    func,
    null,
    or_,
    select,
)

from ..schema import calls, sessions
from .filters import Filter, among, conditions
from .intervals import Moments, finite, mean_interval, share_interval

__all__ = [
    "BY_RUN",
    "ENDED",
    "OF_REWARDS",
    "PLAYED",
    "Live",
    "OpenTotals",
    "Scores",
    "Total",
    "add_spreads",
    "open_sessions",
    "open_totals",
    "sums",
]

_c = sessions.c
ENDED = _c.ended_at.is_not(None)
PLAYED = or_(_c.fault.is_(None), _c.finished.is_(True))
"""Condition for sessions that were not lost, as in ``filters.is_lost``."""
BY_RUN = ("run",)
"""Value of ``by`` for queries of runs, which have a covering index."""
OF_REWARDS = ("scored", "rewards", "squares", "low", "high")
"""The sums of which ``Total`` makes the mean and the interval of rewards."""
_DIGITS = 80  # binary ones, taken from each reward: as many sessions can be added up without an overflow
_SMALLER = 2.0**-_DIGITS
_LEAST, _MOST = 1e-140, 1e140  # what has a square in a float
_NEGLIGIBLE = 1e-200
_FEW = 500


@dataclass(slots=True)
class OpenTotals:
    """Totals of a session that has no end record yet: the values of its row if it ended now."""

    calls: int = 0
    faults: int = 0
    fault: str | None = None
    reward: float | None = None
    reward_sum: float | None = None
    finished: bool = False


Live: TypeAlias = tuple[Any, OpenTotals]
"""An open session, with its totals if its episode is finished."""


@dataclass(slots=True)
class Scores:
    """Sums over sessions. There may be thousands of these."""

    n: int = 0
    scored: int = 0
    rewards: float = 0.0
    """Sum of the rewards, scaled by ``_SMALLER`` to avoid an overflow."""
    solved: int = 0
    last_at: float = -math.inf

    def add_scores(self, row: Row[Any]) -> None:
        """Add a row of sums; columns that were not selected are skipped."""
        self.n += row.n
        self.scored += row.scored
        self.rewards += row.rewards or 0.0
        self.solved += row.solved
        if row.last_at is not None:
            self.last_at = max(self.last_at, row.last_at)

    def add_finished(self, started_at: float, now: OpenTotals, success: float) -> None:
        """Add an open session whose episode is finished."""
        self.n += 1
        if now.reward is not None:
            self.scored += 1
            self.rewards += now.reward * _SMALLER
            self.solved += now.reward >= success
        self.last_at = max(self.last_at, started_at)

    @property
    def reward_mean(self) -> float | None:
        """Mean of the rewards; None without any."""
        return _larger(self.rewards / self.scored) if self.scored else None


@dataclass(slots=True)
class Total(Scores):
    """Sums over the sessions of one run or step."""

    played: int = 0
    reward: Moments = field(default_factory=Moments)
    unclear: int = 0
    """Number of rewards whose variance the sums do not give; not in ``reward`` yet."""
    length: int = 0
    length_squares: int = 0
    first_at: float = math.inf
    running: int = 0
    labelled: bool = False
    environments: set[str] = field(default_factory=set)
    steps: int = 0
    newest_steps: set[int] = field(default_factory=set)

    def add(self, row: Row[Any]) -> None:
        """Add a row with all its sums; ``add_scores`` adds only those of rewards."""
        self.add_scores(row)
        self.played += row.played or 0
        if (rewards := _moments(row)) is None:
            self.unclear += row.scored
        else:
            self.reward += rewards
        self.length += row.length or 0
        self.length_squares += int(row.length_squares or 0)
        if row.first_at is not None:
            self.first_at = min(self.first_at, row.first_at)

    def add_open(self, started_at: float, now: OpenTotals, success: float) -> None:
        """Add an open session."""
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
            self.reward += Moments(1, now.reward)

    def statistics(self) -> dict[str, Any]:
        """Means with intervals, as fields of ``RunSummary`` and ``Point``."""
        reward = mean_interval(self.reward)
        success = share_interval(self.solved, self.played)
        length = mean_interval(Moments.from_whole_sums(self.played, self.length, self.length_squares))
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


def _moments(row: Row[Any]) -> Moments | None:
    """Moments of the rewards from a row of sums; None if these are too imprecise."""
    if row.scored and max(-row.low, row.high) > _MOST:
        return None
    total = _larger(row.rewards or 0.0)
    return Moments.from_sums(row.scored, total, row.squares or 0.0, row.low, row.high)


def _larger(value: float) -> float:
    """The value before it was scaled by ``_SMALLER``; one that was rounded up beyond a float is the largest
    float.
    """
    try:
        return math.ldexp(value, _DIGITS)
    except OverflowError:
        return math.copysign(sys.float_info.max, value)


def sums(
    connection: Connection,
    wanted: Filter,
    success: float,
    names: Sequence[str],
    *keys: ColumnElement[Any],
    shown: Sequence[ColumnElement[Any]] = (),
    by: Sequence[str] = BY_RUN,
) -> Select[Any]:
    """Sums over the sessions that ended, for each combination of the keys; other sums are NULL, since each
    costs time. ``by`` as ``conditions`` has it.
    """
    length = cast(_c.calls, Float)  # the square of an integer may be more than PostgreSQL's integers hold
    rewards, squares = _c.reward * _SMALLER, _c.reward * _c.reward
    if connection.dialect.name == "postgresql":  # which refuses what becomes infinite, or 0
        size = func.abs(_c.reward)
        rewards = case((size > _NEGLIGIBLE, rewards))
        squares = case((between(size, _LEAST, _MOST), squares))
    sums: dict[str, ColumnElement[Any]] = {
        "n": func.count(),
        "played": func.count().filter(PLAYED),
        "scored": func.count(_c.reward).filter(PLAYED),
        "rewards": func.sum(rewards).filter(PLAYED),
        "squares": func.sum(squares).filter(PLAYED),
        "low": func.min(_c.reward).filter(PLAYED),
        "high": func.max(_c.reward).filter(PLAYED),
        "solved": func.count().filter(and_(_c.reward >= success, PLAYED)),
        "length": func.sum(_c.calls).filter(PLAYED),
        "length_squares": func.sum(length * length).filter(PLAYED),
        "first_at": func.min(_c.started_at),
        "last_at": func.max(_c.started_at),
    }
    columns = [(each if name in names else null()).label(name) for name, each in sums.items()]
    return select(*keys, *shown, *columns).where(ENDED, *conditions(wanted, by=by)).group_by(*keys)


def add_spreads(
    connection: Connection, wanted: Filter, found: Mapping[Any, Total], key: ColumnElement[Any]
) -> None:
    """Complete the totals with imprecise sums, from the rewards themselves.

    ``found`` has them by ``key``, as ``sums`` has grouped the sessions.
    """
    unclear = [each for each, total in found.items() if total.unclear]
    if not unclear:
        return
    which = [ENDED, PLAYED, _c.reward.is_not(None), *conditions(wanted, by=BY_RUN)]
    if len(unclear) <= _FEW and None not in unclear:
        which.append(key.in_(unclear))
    rewards: dict[Any, list[float]] = defaultdict(list)
    for each, reward in connection.execute(select(key, _c.reward).where(*which)):
        rewards[each].append(reward)
    for each in unclear:
        total = found[each]
        total.reward += Moments.of(rewards[each])
        total.unclear = 0


def open_sessions(connection: Connection, wanted: Filter) -> Iterator[Live]:
    """Open sessions, with totals if their episode is finished."""
    columns = (
        _c.id, _c.run, _c.labelled, _c.environment, _c.step, _c.started_at, _c.task, _c.split, _c.task_index
    )  # fmt: skip
    rows = connection.execute(select(*columns).where(_c.ended_at.is_(None), *conditions(wanted, by=()))).all()
    if not rows:
        return
    these = among(connection, [row.id for row in rows], calls.c.session)
    over = select(calls.c.session).where(these, calls.c.finished, ~calls.c.discarded).distinct()
    finished = connection.scalars(over).all()
    now = open_totals(connection, among(connection, finished, calls.c.session)) if finished else {}
    for row in rows:
        yield row, now.get(row.id, OpenTotals())


def open_totals(connection: Connection, which: ColumnElement[bool]) -> dict[int, OpenTotals]:
    """Totals by session, over the calls for which ``which`` holds; none for a session without calls."""
    rows = connection.execute(
        select(calls.c.session, calls.c.reward, calls.c.finished, calls.c.discarded, calls.c.fault)
        .where(which)
        .order_by(calls.c.session, calls.c.number)
    )
    found: dict[int, OpenTotals] = {}
    for session, reward, finished, discarded, fault in rows:
        each = found.setdefault(session, OpenTotals())
        each.calls += 1
        if fault is not None:
            each.faults += 1
            each.fault = each.fault or fault
        if discarded:
            continue
        each.finished = each.finished or finished
        if reward is not None:
            each.reward = reward
            each.reward_sum = (each.reward_sum or 0.0) + reward
    for each in found.values():
        each.reward_sum = finite(each.reward_sum)
    return found
