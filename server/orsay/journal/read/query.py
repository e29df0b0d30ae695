"""Queries of the console and the command line: pages of sessions, one trajectory, evaluations.

Every function takes an open connection, and only reads what was played. ``runs``, ``series`` and
``task_grid`` have the statistics of many sessions together.
"""

from __future__ import annotations

import json
import zlib
from contextlib import closing
from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from ..schema import evaluations as evaluations_table
from ..schema import sessions
from ..search.query import catch_up, matches
from .decode import as_json
from .episodes import SUMMARY, summaries, whole
from .filters import Filter, among, conditions
from .models import EvaluationItem, Page, Trajectory
from .runs import runs
from .series import series
from .task_grid import task_map

__all__ = [
    "SEARCH_S",
    "Filter",
    "count",
    "evaluation",
    "evaluations",
    "runs",
    "series",
    "task_map",
    "trajectories",
    "trajectory",
]

SEARCH_S = 0.1
"""Time for which a search continues to fill its index."""

_FEW = 2000


def trajectories(
    connection: Connection, wanted: Filter | None = None, limit: int = 50, before: int | str | None = None
) -> Page:
    """A page of sessions, newest first; ``before`` is the ``next`` of the page above.

    A search for text first gives ``SEARCH_S`` seconds to the index; see ``search``. Raises ValueError for a
    ``before`` that is no number, and JournalDown if the index cannot be stored.
    """
    wanted = wanted or Filter()
    last = None if before is None else int(before)
    query = select(*SUMMARY).where(*conditions(wanted)).order_by(sessions.c.id.desc()).limit(limit + 1)
    if wanted.text and wanted.text.strip():
        unindexed = catch_up(connection, SEARCH_S)
        rows = _found(connection, query, wanted, last, limit + 1)
    else:
        unindexed = 0
        here = query if last is None else query.where(sessions.c.id < last)
        rows = list(connection.execute(here))
    return Page(
        items=summaries(connection, rows[:limit]),
        next=str(rows[limit - 1].id) if len(rows) > limit else None,
        unindexed=unindexed,
    )


def _found(
    connection: Connection, query: Select[Any], wanted: Filter, before: int | None, limit: int
) -> list[Row[Any]]:
    """The first rows of ``query`` that hold the text."""
    rows: list[Row[Any]] = []
    few: set[int] | None = None
    with closing(matches(connection, wanted.text or "", before)) as batches:
        for number, ids in enumerate(batches):
            if number == 1:
                few = _few(connection, wanted, ids[0] + 1)
            if few is not None:
                break
            rows += connection.execute(query.where(among(connection, ids)))
            if len(rows) >= limit:
                break
    if few:
        with closing(matches(connection, wanted.text or "", max(few) + 1, min(few))) as batches:
            ids = [id for batch in batches for id in batch if id in few]
        rows += connection.execute(query.where(among(connection, ids))) if ids else ()
    return rows[:limit]


def _few(connection: Connection, wanted: Filter, before: int) -> set[int] | None:
    """The sessions that pass the filters, if these are so few that looking up each match takes longer."""
    where = list(conditions(wanted))
    if not where:
        return None
    query = select(sessions.c.id).where(*where, sessions.c.id < before)
    ids = connection.scalars(query.order_by(sessions.c.id.desc()).limit(_FEW + 1)).all()
    return set(ids) if len(ids) <= _FEW else None


def trajectory(connection: Connection, id: int | str, owner: str | None = None) -> Trajectory | None:
    """One session with its messages and calls; None for an unknown one, and for one of another owner.

    Raises ValueError for an ``id`` that is no number.
    """
    query = select(sessions.c.id).where(sessions.c.id == int(id))
    if owner is not None:
        query = query.where(sessions.c.owner == owner)
    found = whole(connection, list(connection.execute(query).scalars()))
    return found[0] if found else None


def count(connection: Connection, wanted: Filter | None = None) -> int:
    """Number of sessions, whatever the text."""
    query = select(func.count()).select_from(sessions).where(*conditions(wanted or Filter()))
    return int(connection.execute(query).scalar_one())


def evaluations(
    connection: Connection, limit: int = 100, before: int | str | None = None, owner: str | None = None
) -> list[EvaluationItem]:
    """Evaluations without their episodes, newest first."""
    table = evaluations_table
    query = select(*[column for column in table.c if column.name != "report"])
    if before is not None:
        query = query.where(table.c.id < int(before))
    if owner is not None:
        query = query.where(table.c.owner == owner)
    rows = connection.execute(query.order_by(table.c.id.desc()).limit(limit))
    return [_evaluation(row) for row in rows]


def evaluation(connection: Connection, id: int | str, owner: str | None = None) -> dict[str, Any] | None:
    """The whole report with ``id`` and ``owner`` beside it; None when there is none, or it is another
    owner's.
    """
    table = evaluations_table
    query = select(table).where(table.c.id == int(id))
    if owner is not None:
        query = query.where(table.c.owner == owner)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    report = json.loads(zlib.decompress(row.report))
    return {**report, "id": str(row.id), "owner": row.owner}


def _evaluation(row: Row[Any]) -> EvaluationItem:
    fields = dict(row._mapping)
    summary = as_json(fields.pop("summary"), {}, row.id, "summary")
    return EvaluationItem(
        **{**fields, "id": str(row.id)}, summary=summary if isinstance(summary, dict) else {}
    )
