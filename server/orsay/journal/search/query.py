"""Full text search over prompts, messages, inputs and results.

Sessions are not indexed when they are written, which would slow calls down. A search first spends a bounded
time on the index, which proceeds from the newest sessions to the oldest and adds new ones.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Sequence

from sqlalchemy import Connection, func, select

from ..read.decode import as_json
from ..read.filters import among
from ..schema import calls, prompts, sessions, values
from .index import SearchStore, Span, search_store
from .words import document, phrases, texts_of

__all__ = ["catch_up", "matches"]

_CHUNK = 50  # sessions that are read together
_SETTLED = 10_000 << 22  # ids of ten seconds: another server may take that long to write a session
_PENDING_AT_ONCE = 500
_FIRST_BATCH, _LAST_BATCH = 200, 20_000
_NEWEST = (1 << 63) - 1


def catch_up(connection: Connection, seconds: float) -> int:
    """Index sessions for about that long, at least a few; returns the number of remaining ones.

    Raises JournalDown if the index cannot be stored.
    """
    until = time.monotonic() + seconds
    with search_store(connection, fill=True) as store:
        if store is not None:
            newest = connection.execute(select(func.max(sessions.c.id))).scalar()
            if newest is None:
                return 0
            settled = newest - _SETTLED
            _look_again(connection, store)
            span = _index_new(connection, store, store.span() or (settled + 1, settled), newest, until)
            span = _index_old(connection, store, span, until)
            store.set_span(span)
            _forget_pruned(connection, store)
            return _left(connection, store, span)
    with search_store(connection, fill=False) as store:  # another process fills it
        assert store is not None
        return _left(connection, store, store.span() or (_NEWEST, 0))


def matches(
    connection: Connection, query: str, before: int | None = None, first: int = 0
) -> Generator[list[int], None, None]:
    """Sessions from the id ``first`` on that match a query, newest first, in growing batches.

    All words must occur; a word matches as a prefix, quoted text as a phrase. A query without a letter or
    digit finds nothing.
    """
    wanted = phrases(query)
    last, size = _NEWEST if before is None else before, _FIRST_BATCH
    with search_store(connection, fill=False) as store:
        while wanted and store is not None:
            found = store.find(wanted, first, last, size)
            if found:
                yield found
            if len(found) < size:
                return
            last, size = found[-1], min(size * 5, _LAST_BATCH)


def _look_again(connection: Connection, store: SearchStore) -> None:
    """Index open sessions again: the newest ones, since those of killed servers never end."""
    pending = store.pending()
    some = sorted(pending)[-_PENDING_AT_ONCE:]
    if not some:
        return
    rows = connection.execute(
        select(sessions.c.id, sessions.c.ended_at, func.count(calls.c.number))
        .select_from(sessions.outerjoin(calls, calls.c.session == sessions.c.id))
        .where(among(connection, some))
        .group_by(sessions.c.id, sessions.c.ended_at)
    ).all()
    changed = [id for id, ended_at, n in rows if ended_at is not None or n != pending[id]]
    for first in range(0, len(changed), _CHUNK):
        _index(connection, store, changed[first : first + _CHUNK])
    store.drop(sorted(set(some) - {row.id for row in rows}))


def _index_new(connection: Connection, store: SearchStore, span: Span, newest: int, until: float) -> Span:
    """Index sessions after the range, except the latest seconds, where older ids may still appear."""
    low, high = span
    known = store.known(high + 1)
    last = high
    while True:
        query = select(sessions.c.id).where(sessions.c.id > last).order_by(sessions.c.id).limit(_CHUNK)
        ids = list(connection.execute(query).scalars())
        if not ids:
            break
        _index(connection, store, [id for id in ids if id not in known])
        last = ids[-1]
        if time.monotonic() > until:
            break
    return low, max(high, min(last, newest - _SETTLED))


def _index_old(connection: Connection, store: SearchStore, span: Span, until: float) -> Span:
    """Index sessions before the range, from the newest on."""
    low, high = span
    while True:
        query = select(sessions.c.id).where(sessions.c.id < low).order_by(sessions.c.id.desc()).limit(_CHUNK)
        ids = list(connection.execute(query).scalars())
        if not ids:
            break
        _index(connection, store, ids)
        low = ids[-1]
        if time.monotonic() > until:
            break
    return low, high


def _left(connection: Connection, store: SearchStore, span: Span) -> int:
    low, high = span
    count = select(func.count()).select_from(sessions)
    new = connection.execute(count.where(sessions.c.id > high)).scalar_one() - len(store.known(high + 1))
    old = connection.execute(count.where(sessions.c.id < low)).scalar_one()
    return max(0, int(new)) + int(old)


def _forget_pruned(connection: Connection, store: SearchStore) -> None:
    """Remove pruned sessions, the oldest ones, from the index."""
    oldest = connection.execute(select(func.min(sessions.c.id))).scalar()
    store.drop([id for id in store.oldest(_CHUNK) if oldest is None or id < oldest])


def _index(connection: Connection, store: SearchStore, ids: Sequence[int]) -> None:
    if not ids:
        return
    large = {
        (row.row, row.field): row.data
        for row in connection.execute(
            select(values.c.row, values.c.field, values.c.data).where(values.c.session.in_(ids))
        )
    }
    found: dict[int, list[str]] = defaultdict(list)
    number: dict[int, int] = defaultdict(int)
    for row in connection.execute(select(prompts).where(prompts.c.session.in_(ids))):
        if row.kind != "task_tools":
            found[row.session] += texts_of(as_json(row.text, large, row.session, row.kind))
    for row in connection.execute(
        select(calls).where(calls.c.session.in_(ids)).order_by(calls.c.session, calls.c.id)
    ):
        texts = found[row.session]
        texts += [row.name, row.fault or "", row.fault_id or "", row.message or ""]
        for field in ("input", "result"):
            texts += texts_of(as_json(getattr(row, field), large, row.id, field))
        number[row.session] += row.number is not None
    named = select(sessions.c.id, sessions.c.sid, sessions.c.trace, sessions.c.rollout, sessions.c.ended_at)
    store.put(
        (
            row.id,
            document([str(row.id), row.sid, row.trace, row.rollout or "", *found[row.id]]),
            number[row.id] if row.ended_at is None else None,
        )
        for row in connection.execute(named.where(sessions.c.id.in_(ids))).all()
    )
