"""Retention: selects and removes sessions and rollouts beyond the bounds on age, number and size.

Open sessions and evaluations are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, exists, func, or_, select, text

from ..options import JournalOptions
from ..schema import (
    asks,
    calls,
    prompts,
    rollout_messages,
    rollouts,
    sandbox_events,
    scores,
    sessions,
    values,
)

__all__ = [
    "AT_ONCE",
    "PAGES_AT_ONCE",
    "free_pages",
    "give_back",
    "remove",
    "remove_rollouts",
    "rollouts_to_remove",
    "size_bytes",
    "steps",
    "to_remove",
]

AT_ONCE = 10
"""Sessions or rollouts to remove in one transaction, which blocks the writer."""

PAGES_AT_ONCE = 256
"""Pages of a SQLite file to release in one transaction."""

_PLANNED = 2_000
_DAY_S = 86_400
_SILENT_S = 30 * _DAY_S  # an open session of this age belongs to a server that was killed
_ROOM = 0.95  # share of the allowed bytes to keep: hysteresis
_KEPT_FREE = 0.25  # share of a file's pages that may be empty, for new rows
_POSTGRES_SIZES = {  # size of a row besides its texts, with its part of the indexes
    sessions: ("0", 1_500),
    calls: ("coalesce(octet_length(input), 0) + coalesce(octet_length(result), 0)", 400),
    prompts: ("coalesce(octet_length(text), 0)", 120),
    asks: ("0", 100),
    scores: ("coalesce(octet_length(detail), 0)", 160),
    sandbox_events: ("octet_length(what) + coalesce(octet_length(output), 0)", 300),
    rollouts: ("0", 600),
    rollout_messages: ("coalesce(octet_length(content), 0) + coalesce(octet_length(metadata), 0)", 250),
    values: ("octet_length(data)", 160),
}
_SAMPLE = 5_000  # rows
_LOCK = 0x6F727361790002


def to_remove(connection: Connection, options: JournalOptions, now: float) -> list[int]:
    """Sessions to remove now, the oldest first, at most some thousands: call again afterwards."""
    gone = _gone(now)
    found: list[int] = []
    if options.max_age_days is not None:
        before = now - options.max_age_days * _DAY_S
        old = and_(gone, func.coalesce(sessions.c.ended_at, sessions.c.started_at) < before)
        found = _oldest(connection, old, _PLANNED)
    excess = _excess(connection, options, sessions) - len(found)
    if excess > 0:
        known = set(found)
        more = _oldest(connection, gone, min(excess + len(found), _PLANNED))
        found += [id for id in more if id not in known][:excess]
    return found[:_PLANNED]


def rollouts_to_remove(connection: Connection, options: JournalOptions, now: float) -> list[int]:
    """Rollouts to remove now, the oldest first: as many are kept as sessions are."""
    excess = _excess(connection, options, rollouts)
    columns = rollouts.c.id, rollouts.c.started_at
    oldest = connection.execute(
        select(*columns).order_by(rollouts.c.started_at, rollouts.c.id).limit(_PLANNED)
    )
    before = -math.inf if options.max_age_days is None else now - options.max_age_days * _DAY_S
    return [id for at, (id, started_at) in enumerate(oldest) if at < excess or started_at < before]


def _gone(now: float) -> ColumnElement[bool]:
    """Condition for sessions that are no longer played."""
    since = now - _SILENT_S
    played = exists().where(calls.c.session == sessions.c.id, calls.c.started_at > since)
    silent = and_(sessions.c.ended_at.is_(None), sessions.c.started_at < since, ~played)
    return or_(sessions.c.ended_at.is_not(None), silent)


def _oldest(connection: Connection, which: ColumnElement[bool], count: int) -> list[int]:
    return list(connection.scalars(select(sessions.c.id).where(which).order_by(sessions.c.id).limit(count)))


def _excess(connection: Connection, options: JournalOptions, table: Table) -> int:
    """Number of surplus sessions or rollouts, by number and by size."""
    if options.max_sessions is None and options.max_bytes is None:
        return 0
    size = 0 if options.max_bytes is None else size_bytes(connection, options.max_bytes)
    large = options.max_bytes is not None and size > options.max_bytes
    if options.max_sessions is None and not large:
        return 0
    count = connection.scalar(select(func.count()).select_from(table)) or 0
    excess = 0 if options.max_sessions is None else count - options.max_sessions
    if large and options.max_bytes is not None:
        excess = max(excess, math.ceil(count * (1 - _ROOM * options.max_bytes / size)))
    return excess


def remove(connection: Connection, ids: Sequence[int]) -> None:
    """Remove these sessions with all their rows; call with ``AT_ONCE`` at most."""
    _serialize(connection)
    for table in (calls, prompts, asks, scores, sandbox_events, values):
        connection.execute(delete(table).where(table.c.session.in_(ids)))
    connection.execute(delete(sessions).where(sessions.c.id.in_(ids)))


def remove_rollouts(connection: Connection, ids: Sequence[int]) -> None:
    """Remove these rollouts with all their rows; call with ``AT_ONCE`` at most."""
    _serialize(connection)
    connection.execute(delete(rollout_messages).where(rollout_messages.c.rollout.in_(ids)))
    connection.execute(delete(values).where(values.c.session.in_(ids)))
    connection.execute(delete(rollouts).where(rollouts.c.id.in_(ids)))


def _serialize(connection: Connection) -> None:
    """Let one of several servers at a time remove rows."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))


def steps(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """The ids in parts for ``remove`` and ``remove_rollouts``."""
    for at in range(0, len(ids), AT_ONCE):
        yield ids[at : at + AT_ONCE]


# size


def size_bytes(connection: Connection, enough: int = 0) -> int:
    """Size of the journal's rows on disk, without free space in its files.

    PostgreSQL does not report it: if the files are larger than ``enough``, it is estimated from a sample.
    """
    if connection.dialect.name == "sqlite":
        pages, free, size = (
            _pragma(connection, name) for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size
    tables = list(_POSTGRES_SIZES)
    files = sum(
        connection.scalar(text("SELECT pg_total_relation_size(:name)"), {"name": table.name}) or 0
        for table in tables
    )
    if files <= enough:
        return files
    return min(files, sum(_estimate(connection, table) for table in tables))


def _estimate(connection: Connection, table: Any) -> int:
    name = table.name
    query = text("SELECT n_live_tup FROM pg_stat_user_tables WHERE relid = CAST(:name AS regclass)")
    count = connection.scalar(query, {"name": name}) or 0
    length, rest = _POSTGRES_SIZES[table]
    percent = min(100.0, 100 * _SAMPLE / max(count, 1))
    sample = text(f"SELECT avg({length}) FROM {name} TABLESAMPLE SYSTEM ({percent:f})")
    return round(count * (rest + float(connection.scalar(sample) or 0)))


def free_pages(connection: Connection) -> int:
    """Number of surplus empty pages of a SQLite file; 0 for PostgreSQL."""
    if connection.dialect.name != "sqlite":
        return 0
    pages, free = _pragma(connection, "page_count"), _pragma(connection, "freelist_count")
    return max(0, free - round(pages * _KEPT_FREE))


def give_back(connection: Connection) -> None:
    """Release some empty pages of a SQLite file."""
    driver: Any = connection.connection.driver_connection
    # Each step releases one page: executescript steps to the end. It commits an open transaction.
    driver.executescript(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE});")


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar() or 0)
