"""Filters of sessions, as conditions in SQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    and_,
    any_,
    bindparam,
    case,
    func,
    or_,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from ..schema import calls, sessions
from ..trials import TRIAL_NAMES, TRIAL_PREFIXES

__all__ = ["Filter", "among", "conditions", "is_lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conjunction of conditions; None is no condition.

    ``fault`` is ``any``, ``none`` or a class. ``since`` and ``until`` bound the start of the session, in
    seconds since 1970, ``until`` excluded. ``owner`` is the name of an API key: its holder sees these
    sessions only. ``sid`` is the client's id of the session. ``text`` is a search query, see ``search``.
    Without ``trials``, sessions of trial runs are included only if the run is named.
    """

    environment: str | None = None
    run: str | None = None
    split: str | None = None
    task: str | None = None
    sid: str | None = None
    owner: str | None = None
    step: int | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    fault: str | None = None
    finished: bool | None = None
    text: str | None = None
    since: float | None = None
    until: float | None = None
    trials: bool = True


_EXACT = ("environment", "run", "split", "task", "sid", "owner", "step")


def conditions(wanted: Filter, *, by: Collection[str] = _EXACT) -> Iterator[ColumnElement[bool]]:
    """Conditions of a filter, except for ``text``. Sessions without an end are judged by their calls.

    SQLite, without statistics of values, may choose an index only by the columns in ``by``.
    """
    for name in _EXACT:
        value = getattr(wanted, name)
        if value is not None:
            yield (sessions.c[name] if name in by else _Walked(sessions.c[name])) == value
    if not wanted.trials and wanted.run is None:
        yield ~_is_trial()
    if wanted.since is not None:
        yield sessions.c.started_at >= wanted.since
    if wanted.until is not None:
        yield sessions.c.started_at < wanted.until
    if wanted.reward_min is not None:
        yield _reward() >= wanted.reward_min
    if wanted.reward_max is not None:
        yield _reward() <= wanted.reward_max
    if wanted.finished is not None:
        yield _finished() if wanted.finished else ~_finished()
    if wanted.fault == "none":
        yield and_(sessions.c.fault.is_(None), ~_faulted())
    elif wanted.fault == "any":
        yield or_(sessions.c.fault.is_not(None), _faulted())
    elif wanted.fault is not None:
        yield or_(sessions.c.fault == wanted.fault, _faulted(wanted.fault))


class _Walked(FunctionElement[Any]):
    """A column that SQLite must not choose an index by (unary plus)."""

    inherit_cache = True


@compiles(_Walked)
def _walked(element: _Walked, compiler: SQLCompiler, **more: Any) -> str:
    return compiler.process(element.clauses, **more)


@compiles(_Walked, "sqlite")
def _walked_by_sqlite(element: _Walked, compiler: SQLCompiler, **more: Any) -> str:
    return "+" + compiler.process(element.clauses, **more)


def among(
    connection: Connection, ids: Sequence[int], column: ColumnElement[int] = sessions.c.id
) -> ColumnElement[bool]:
    """Membership of the column, by default the session's id, in a list of any length, as one parameter."""
    if connection.dialect.name == "sqlite":
        return column.in_(select(func.json_each(json.dumps(ids)).table_valued("value").c.value))
    return column == any_(bindparam("ids", list(ids), type_=ARRAY(BigInteger)))


def is_lost() -> ColumnElement[bool]:
    """Condition for sessions that a fault ended: their reward does not measure the policy."""
    return and_(sessions.c.fault.is_not(None), sessions.c.finished.is_not(True))


def _is_trial() -> ColumnElement[bool]:
    """Condition by the name of the run, which all covering indexes include."""
    run = sessions.c.run
    begins = (func.substr(run, 1, len(prefix)) == prefix for prefix in TRIAL_PREFIXES)
    return or_(run.in_(TRIAL_NAMES), *begins)


def _reward() -> ColumnElement[float]:
    last = (
        select(calls.c.reward)
        .where(calls.c.session == sessions.c.id, calls.c.reward.is_not(None), ~calls.c.discarded)
        .order_by(calls.c.number.desc())
        .limit(1)
        .scalar_subquery()
    )
    return case((sessions.c.ended_at.is_(None), last), else_=sessions.c.reward)


def _finished() -> ColumnElement[bool]:
    done = _has_call(calls.c.finished, ~calls.c.discarded)
    return case((sessions.c.ended_at.is_(None), done), else_=func.coalesce(sessions.c.finished, False))


def _faulted(fault: str | None = None) -> ColumnElement[bool]:
    """Condition for open sessions with a failed call."""
    which = calls.c.fault.is_not(None) if fault is None else calls.c.fault == fault
    return and_(sessions.c.ended_at.is_(None), _has_call(which))


def _has_call(*which: ColumnElement[bool]) -> ColumnElement[bool]:
    """The session has such a call. ``EXISTS`` would have PostgreSQL look for those of all sessions first."""
    first = select(calls.c.id).where(calls.c.session == sessions.c.id, *which).limit(1).scalar_subquery()
    return first.is_not(None)
