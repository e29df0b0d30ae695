"""Summaries and trajectories of sessions, read in batches with few queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, select

from ..schema import calls, prompts, sandbox_events, scores, sessions, values
from .aggregates import open_totals
from .decode import Large, as_json, read_blocks, read_sandbox, read_step, read_tools
from .filters import among
from .intervals import finite
from .models import SandboxItem, Summary, Trajectory

__all__ = ["SUMMARY", "summaries", "whole"]

SUMMARY = [sessions.c[name] for name in Summary.model_fields]
"""Columns of ``sessions`` that a summary needs."""


def summaries(connection: Connection, rows: Sequence[Row[Any]]) -> list[Summary]:
    """Summaries from rows with the columns ``SUMMARY``; totals of open sessions come from their calls."""
    lives = [row.id for row in rows if row.ended_at is None]
    now = open_totals(connection, calls.c.session.in_(lives)) if lives else {}
    found = []
    for row in rows:
        fields = {column.name: getattr(row, column.name) for column in SUMMARY}
        if row.id in now:
            fields.update(asdict(now[row.id]))
        fields["id"] = str(row.id)
        fields["reward_sum"] = finite(fields["reward_sum"])  # older servers wrote infinite ones
        fields["calls"] = fields["calls"] or 0
        fields["faults"] = fields["faults"] or 0
        fields["finished"] = bool(fields["finished"])
        found.append(Summary(**fields))
    return found


def whole(connection: Connection, ids: Sequence[int]) -> list[Trajectory]:
    """Trajectories, newest first; unknown ids are left out."""
    query = select(sessions).where(among(connection, ids)).order_by(sessions.c.id.desc())
    rows = connection.execute(query).all()
    large: dict[int, dict[tuple[int, str], bytes]] = defaultdict(dict)
    columns = values.c.session, values.c.row, values.c.field, values.c.data
    for each in connection.execute(select(*columns).where(among(connection, ids, values.c.session))):
        large[each.session][each.row, each.field] = each.data
    shown: dict[int, dict[str, Any]] = defaultdict(dict)
    for each in connection.execute(select(prompts).where(among(connection, ids, prompts.c.session))):
        shown[each.session][each.kind] = as_json(each.text, large[each.session], each.session, each.kind)
    scored: dict[int, list[Any]] = defaultdict(list)
    of_these = among(connection, ids, scores.c.session)
    for each in connection.execute(select(scores).where(of_these).order_by(scores.c.candidate)):
        scored[each.call].append(each)
    called: dict[int, list[Any]] = defaultdict(list)
    of_these = among(connection, ids, calls.c.session)
    for each in connection.execute(select(calls).where(of_these).order_by(calls.c.id)):
        called[each.session].append(each)
    used: dict[int, list[SandboxItem]] = defaultdict(list)
    of_these = among(connection, ids, sandbox_events.c.session)
    for each in connection.execute(select(sandbox_events).where(of_these).order_by(sandbox_events.c.id)):
        used[each.session].append(read_sandbox(each, large[each.session]))
    return [
        _trajectory(row, summary, called[row.id], large[row.id], shown[row.id], scored, used[row.id])
        for row, summary in zip(rows, summaries(connection, rows), strict=True)
    ]


def _trajectory(
    row: Row[Any],
    summary: Summary,
    called: Sequence[Any],
    large: Large,
    shown: dict[str, Any],
    scored: dict[int, list[Any]],
    used: Sequence[SandboxItem],
) -> Trajectory:
    by_call: dict[str | None, list[SandboxItem]] = defaultdict(list)
    known = {each.task_id for each in called}
    for item in used:
        by_call[item.call if item.call in known else None].append(item)
    steps = [
        read_step(each, large, scored.get(each.id, ()), by_call.get(each.task_id, ())) for each in called
    ]
    # in the order of results; calls without one come last
    steps.sort(key=lambda step: (step.number is None, step.number or 0))
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
        sandbox=by_call[None],
    )


def _objects(value: Any) -> list[dict[str, Any]] | None:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else None
