"""Counts of a journal's contents, for ``orsay journal stats``."""

from __future__ import annotations

from pydantic import BaseModel
from sqlalchemy import Connection, func, select

from ..database import Store
from ..schema import calls, evaluations, rollout_messages, rollouts, sessions
from ..search.index import search_file
from .models import RunSummary
from .query import runs

__all__ = ["EnvironmentTally", "Tally", "tally"]


class EnvironmentTally(BaseModel):
    """The sessions of one environment."""

    environment: str
    sessions: int
    faults: int
    """Sessions with a fault."""
    last_at: float


class Tally(BaseModel):
    """Counts and sizes; times are seconds since 1970, None in an empty journal."""

    journal: str
    """Path, or URL without password."""
    size_bytes: int
    """Size of the database, including its log and free pages."""
    search_bytes: int
    """Size of the index for text search beside a SQLite journal; in PostgreSQL it is part of the size."""
    sessions: int
    unended: int
    """Open sessions, and those of killed servers."""
    calls: int
    evaluations: int
    rollouts: int
    """Rollouts that clients logged, and their messages."""
    rollout_messages: int
    first_at: float | None
    last_at: float | None
    faults: dict[str, int]
    """Sessions by the class of their fault."""
    environments: list[EnvironmentTally]
    runs: list[RunSummary]
    """The newest."""


def tally(store: Store, *, newest_runs: int = 10) -> Tally:
    """Count. Raises JournalDown."""
    with store.reading() as connection:
        s = sessions.c
        first, last = connection.execute(select(func.min(s.id), func.max(s.id))).one()
        started = {
            row.id: row.started_at
            for row in connection.execute(select(s.id, s.started_at).where(s.id.in_((first, last))))
        }
        by_fault = select(s.fault, func.count()).where(s.fault.is_not(None)).group_by(s.fault)
        by_environment = (
            select(s.environment, func.count(), func.count(s.fault), func.max(s.started_at))
            .group_by(s.environment)
            .order_by(func.count().desc())
        )
        size, search = _sizes(store, connection)
        return Tally(
            journal=store.location,
            size_bytes=size,
            search_bytes=search,
            sessions=connection.scalar(select(func.count()).select_from(sessions)) or 0,
            unended=connection.scalar(select(func.count()).where(s.ended_at.is_(None))) or 0,
            calls=connection.scalar(select(func.count()).select_from(calls)) or 0,
            evaluations=connection.scalar(select(func.count()).select_from(evaluations)) or 0,
            rollouts=connection.scalar(select(func.count()).select_from(rollouts)) or 0,
            rollout_messages=connection.scalar(
                select(func.count()).where(rollout_messages.c.number.is_not(None))
            )
            or 0,
            first_at=started.get(first),
            last_at=started.get(last),
            faults={row[0]: row[1] for row in connection.execute(by_fault.order_by(s.fault))},
            environments=[
                EnvironmentTally(environment=name, sessions=n, faults=faults, last_at=last_at)
                for name, n, faults, last_at in connection.execute(by_environment)
            ],
            runs=runs(connection, limit=newest_runs),
        )


def _sizes(store: Store, connection: Connection) -> tuple[int, int]:
    path = store.options.path
    if path is None:
        return connection.scalar(select(func.pg_database_size(func.current_database()))) or 0, 0
    found = []
    for file in (path, search_file(path)):
        parts = (file.with_name(file.name + end) for end in ("", "-wal"))
        found.append(sum(part.stat().st_size for part in parts if part.is_file()))
    return found[0], found[1]
