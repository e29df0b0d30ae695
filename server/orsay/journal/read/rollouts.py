"""Rollouts that clients logged: pages of them, and whole ones with their messages."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, or_, select

from ..schema import rollout_messages, rollouts, values
from .decode import Large, as_json
from .filters import among
from .models import _Read

__all__ = [
    "LoggedMessage",
    "LoggedRollout",
    "RolloutFilter",
    "RolloutPage",
    "RolloutSummary",
    "count_rollouts",
    "known_rollouts",
    "rollout",
    "rollout_page",
    "whole_rollouts",
]

UPDATE = "update"
"""``kind`` of a row that is no message, but says something of the rollout itself."""


class RolloutSummary(_Read):
    """A rollout; ``event`` is the client's id of it, ``name`` the client's name.

    ``reward`` is the last one, ``reward_sum`` the sum over all messages; ``ended_at`` is the time of the last
    message, by the client's clock.
    """

    id: str
    event: str
    owner: str
    run: str
    name: str | None
    environment: str | None
    variant: str | None
    split: str | None
    step: int | None
    client: str
    started_at: float
    ended_at: float | None
    messages: int
    reward: float | None
    reward_sum: float | None
    finished: bool


class LoggedMessage(_Read):
    """One message of a rollout, as its client sent it; ``call`` joins a call and its result."""

    event: str
    number: int | None
    kind: str
    content: str | None
    summary: str | None
    reference: str | None
    name: str | None
    call: str | None
    reward: float | None
    finished: bool
    metadata: Any
    at: float


class LoggedRollout(RolloutSummary):
    """All of a rollout; ``info`` is what its client told later, such as the index of the task."""

    kind: Literal["rollout"] = "rollout"
    task_spec: Any
    metadata: Any
    run_info: Any
    info: dict[str, Any]
    items: list[LoggedMessage]


class RolloutPage(_Read):
    """Rollouts, newest first; ``next`` is the ``before`` of the page below, null for none."""

    items: list[RolloutSummary]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFilter:
    """Conjunction of conditions; None is no condition. ``since`` and ``until`` bound the start."""

    environment: str | None = None
    run: str | None = None
    split: str | None = None
    step: int | None = None
    owner: str | None = None
    since: float | None = None
    until: float | None = None


def rollout_page(
    connection: Connection, wanted: RolloutFilter, limit: int = 50, before: str | None = None
) -> RolloutPage:
    """A page of rollouts. Raises ValueError for a ``before`` that is no ``next`` of a page."""
    query = select(rollouts).where(*_conditions(wanted))
    if before is not None:
        moment, _, last = before.partition("-")
        started, id = rollouts.c.started_at, rollouts.c.id
        at, last_id = float(moment), min(int(last), 2**63 - 1)
        query = query.where(or_(started < at, and_(started == at, id < last_id)))
    ordered = query.order_by(rollouts.c.started_at.desc(), rollouts.c.id.desc()).limit(limit + 1)
    rows = connection.execute(ordered).all()
    shown = rows[:limit]
    more = len(rows) > limit
    return RolloutPage(
        items=[RolloutSummary(**fields) for fields in _summaries(connection, shown)],
        next=f"{shown[-1].started_at!r}-{shown[-1].id}" if more else None,
    )


def rollout(connection: Connection, id: int, owner: str | None = None) -> LoggedRollout | None:
    """One rollout; None for an unknown one, and for one of another owner."""
    query = select(rollouts.c.id).where(rollouts.c.id == id)
    if owner is not None:
        query = query.where(rollouts.c.owner == owner)
    found = whole_rollouts(connection, list(connection.scalars(query)))
    return found[0] if found else None


def whole_rollouts(connection: Connection, ids: Sequence[int]) -> list[LoggedRollout]:
    """Rollouts with all their messages, newest first; unknown ids are left out."""
    here = among(connection, ids, rollouts.c.id)
    query = select(rollouts).where(here).order_by(rollouts.c.started_at.desc(), rollouts.c.id.desc())
    rows = connection.execute(query).all()
    large: dict[int, dict[tuple[int, str], bytes]] = defaultdict(dict)
    columns = values.c.session, values.c.row, values.c.field, values.c.data
    for each in connection.execute(select(*columns).where(among(connection, ids, values.c.session))):
        large[each.session][each.row, each.field] = each.data
    logged: dict[int, list[Any]] = defaultdict(list)
    table = rollout_messages.c
    order = (table.number.is_(None), table.number, table.at)
    of_these = among(connection, ids, table.rollout)
    for each in connection.execute(select(rollout_messages).where(of_these).order_by(*order)):
        logged[each.rollout].append(each)
    return [
        _whole(row, fields, logged[row.id], large[row.id])
        for row, fields in zip(rows, _summaries(connection, rows), strict=True)
    ]


def count_rollouts(connection: Connection, wanted: RolloutFilter | None = None) -> int:
    """Number of rollouts."""
    query = select(func.count()).select_from(rollouts).where(*_conditions(wanted or RolloutFilter()))
    return int(connection.execute(query).scalar_one())


def known_rollouts(connection: Connection, ids: Collection[int]) -> dict[int, int]:
    """Those of the rollouts that are there, each with the number of its messages and updates."""
    counted = (
        select(func.count())
        .where(rollout_messages.c.rollout == rollouts.c.id)
        .correlate(rollouts)
        .scalar_subquery()
    )
    these = among(connection, list(ids), rollouts.c.id)
    found = connection.execute(select(rollouts.c.id, counted).where(these))
    return {row[0]: row[1] for row in found}


def _conditions(wanted: RolloutFilter) -> Iterator[ColumnElement[bool]]:
    for name in ("environment", "run", "split", "step", "owner"):
        if (value := getattr(wanted, name)) is not None:
            yield rollouts.c[name] == value
    if wanted.since is not None:
        yield rollouts.c.started_at >= wanted.since
    if wanted.until is not None:
        yield rollouts.c.started_at < wanted.until


def _summaries(connection: Connection, rows: Sequence[Row[Any]]) -> list[dict[str, Any]]:
    """Fields of RolloutSummary, for each row of ``rollouts``."""
    ids = [row.id for row in rows]
    table = rollout_messages.c
    of_these = among(connection, ids, table.rollout)
    ended = case((table.finished, 1), else_=0)
    totals = (
        select(table.rollout, func.count(table.number), func.max(table.at), func.max(ended))
        .where(of_these)
        .group_by(table.rollout)
    )
    found = {id: rest for id, *rest in connection.execute(totals)}
    rewards: dict[int, list[float]] = defaultdict(list)
    scored = select(table.rollout, table.reward).where(of_these, table.reward.is_not(None))
    for id, reward in connection.execute(scored.order_by(table.number)):
        rewards[id].append(reward)
    return [_summary(row, found.get(row.id, (0, None, 0)), rewards[row.id]) for row in rows]


def _summary(row: Row[Any], totals: Sequence[Any], rewards: Sequence[float]) -> dict[str, Any]:
    messages, ended_at, finished = totals
    fields = {name: getattr(row, name) for name in RolloutSummary.model_fields if name in rollouts.c}
    return {
        **fields,
        "id": str(row.id),
        "messages": messages,
        "ended_at": ended_at,
        "finished": bool(finished),
        "reward": rewards[-1] if rewards else None,
        "reward_sum": sum(rewards) if rewards else None,
    }


def _whole(row: Row[Any], fields: dict[str, Any], logged: Sequence[Row[Any]], large: Large) -> LoggedRollout:
    info: dict[str, Any] = {}
    for each in logged:
        if each.kind == UPDATE and isinstance(told := _metadata(each, large), dict):
            info |= told
    parts = {name: as_json(getattr(row, name), large, row.id, name) for name in _PARTS}
    items = [_message(each, large) for each in logged if each.kind != UPDATE]
    return LoggedRollout(**fields, **parts, info=info, items=items)


_PARTS = ("task_spec", "metadata", "run_info")


def _metadata(row: Row[Any], large: Large) -> Any:
    return as_json(row.metadata, large, row.rollout, f"metadata {row.event}")


def _message(row: Row[Any], large: Large) -> LoggedMessage:
    fields = {name: getattr(row, name) for name in LoggedMessage.model_fields}
    for name in ("content", "summary", "reference"):
        fields[name] = _text(fields[name], large, row.rollout, f"{name} {row.event}")
    return LoggedMessage(**{**fields, "metadata": _metadata(row, large)})


def _text(text: str | None, large: Large, row: int, field: str) -> str | None:
    packed = large.get((row, field)) if text is None else None
    if packed is None:
        return text
    try:
        return zlib.decompress(packed).decode(errors="replace")
    except zlib.error:
        return "(this value is damaged)"
