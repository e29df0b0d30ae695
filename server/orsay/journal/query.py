"""What the console and the command line ask of the journal: pages of sessions, one trajectory, evaluations.

Every function takes an open connection, and only reads what was played. ``runs`` has the figures of many
sessions together.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, Select, select

from .filters import Filter, among, conditions
from .reading import Large, as_json, read_blocks, read_step, read_tools
from .runs import runs, series, task_map
from .schema import calls, prompts, scores, sessions, values
from .schema import evaluations as evaluations_table
from .search import catch_up, matches
from .sofar import so_far
from .trajectory import EvaluationItem, Page, Summary, Trajectory

__all__ = [
    "SEARCH_S",
    "Filter",
    "evaluation",
    "evaluations",
    "runs",
    "series",
    "summaries",
    "task_map",
    "trajectories",
    "trajectory",
]

SEARCH_S = 0.1
_SUMMARY = [
    column for column in sessions.c if column.name not in ("server", "labels", "digest", "secrets", "cursor")
]


def trajectories(
    connection: Connection, wanted: Filter | None = None, limit: int = 50, before: int | str | None = None
) -> Page:
    """A page of sessions, newest first; ``before`` is the ``next`` of the page above.

    A search for text first gives ``SEARCH_S`` seconds to the index; see ``search``. Raises ValueError for a
    ``before`` that is no number, and JournalDown when the index has no place.
    """
    wanted = wanted or Filter()
    last = None if before is None else int(before)
    query = select(*_SUMMARY).where(*conditions(wanted)).order_by(sessions.c.id.desc()).limit(limit + 1)
    if wanted.text and wanted.text.strip():
        unindexed = catch_up(connection, SEARCH_S)
        rows = _found(connection, query, wanted.text, last, limit + 1)
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
    connection: Connection, query: Select[Any], text: str, before: int | None, limit: int
) -> list[Row[Any]]:
    """The first rows of ``query`` that hold the text."""
    rows: list[Row[Any]] = []
    with closing(matches(connection, text, before)) as batches:
        for ids in batches:
            rows += connection.execute(query.where(among(connection, ids)))
            if len(rows) >= limit:
                break
    return rows[:limit]


def trajectory(connection: Connection, id: int | str, owner: str | None = None) -> Trajectory | None:
    """Everything about one session; None when there is none, or it is another owner's.

    Raises ValueError for an ``id`` that is no number.
    """
    query: Select[Any] = select(sessions).where(sessions.c.id == int(id))
    if owner is not None:
        query = query.where(sessions.c.owner == owner)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    large: Large = {
        (each.row, each.field): each.data
        for each in connection.execute(
            select(values.c.row, values.c.field, values.c.data).where(values.c.session == row.id)
        )
    }
    shown = {
        kind: as_json(text, large, row.id, kind)
        for kind, text in connection.execute(
            select(prompts.c.kind, prompts.c.text).where(prompts.c.session == row.id)
        )
    }
    scored: dict[int, list[Row[Any]]] = defaultdict(list)
    for each in connection.execute(
        select(scores).where(scores.c.session == row.id).order_by(scores.c.candidate)
    ):
        scored[each.call].append(each)
    found = connection.execute(select(calls).where(calls.c.session == row.id).order_by(calls.c.id)).all()
    steps = [read_step(each, large, scored[each.id]) for each in found]
    # results in the order in which they came; what never ended stands at its start
    steps.sort(key=lambda step: (step.number is None, step.number or 0))
    (summary,) = summaries(connection, [row])
    prompt, request = shown.get("prompt"), as_json(None, large, row.id, "request")
    labels = as_json(row.labels, large, row.id, "labels")
    return Trajectory(
        **summary.model_dump(),
        labels=labels if isinstance(labels, dict) else None,
        request=request if isinstance(request, dict) else None,
        prompt=None if prompt is None else read_blocks(prompt),
        messages=_objects(shown.get("messages")),
        tools=read_tools(shown.get("task_tools")),
        steps=steps,
    )


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


def summaries(connection: Connection, rows: Sequence[Row[Any]]) -> list[Summary]:
    """Rows of ``sessions`` as readers see them; what has not ended is summed up from its calls."""
    lives = [row.id for row in rows if row.ended_at is None]
    now = so_far(connection, calls.c.session.in_(lives)) if lives else {}
    found = []
    for row in rows:
        fields = {column.name: getattr(row, column.name) for column in _SUMMARY}
        if row.id in now:
            fields.update(asdict(now[row.id]))
        fields["id"] = str(row.id)
        fields["calls"] = fields["calls"] or 0
        fields["faults"] = fields["faults"] or 0
        fields["finished"] = bool(fields["finished"])
        found.append(Summary(**fields))
    return found


def _objects(value: Any) -> list[dict[str, Any]] | None:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else None


def _evaluation(row: Row[Any]) -> EvaluationItem:
    fields = dict(row._mapping)
    summary = as_json(fields.pop("summary"), {}, row.id, "summary")
    return EvaluationItem(
        **{**fields, "id": str(row.id)}, summary=summary if isinstance(summary, dict) else {}
    )
