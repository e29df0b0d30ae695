"""What the journal knows of sessions that a killed server left open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orsay_protocol.faults import FaultClass
from pydantic_core import to_json
from sqlalchemy import Connection, Row, and_, func, select

from .rows import SessionEnded
from .schema import calls, prompts, sessions, values
from .values import unpack

__all__ = [
    "Ended",
    "PastCall",
    "PastContent",
    "PastSession",
    "ended_after",
    "ending",
    "left_open",
    "read_content",
]


@dataclass(frozen=True, slots=True)
class PastSession:
    """A session without an end.

    ``lost`` tells what befell it, with its fault class ``lost_by``; ``results`` is how many the journal must
    have of it, where that is known.
    """

    id: int
    sid: str
    owner: str
    environment: str
    digest: str
    replayable: bool
    secrets: bool
    lost: str = "server restarted"
    lost_by: FaultClass = "session_gone"
    results: int | None = None


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call as it was recorded. ``number`` is None for one that had no result yet. JSON in bytes."""

    id: int
    number: int | None
    kind: str
    task_id: str
    key: str | None
    name: str
    input: bytes
    result: bytes | None
    reward: float | None
    finished: bool
    discarded: bool
    fault: str | None
    fault_id: str | None
    message: str | None
    started_at: float

    @property
    def body(self) -> bytes:
        """A request's body that makes the same call."""
        if self.kind != "call":
            return self.input
        return b'{"name":' + to_json(self.name) + b',"input":' + self.input + b"}"


@dataclass(frozen=True, slots=True)
class PastContent:
    """All there is of a session: calls with a result, in the order of their results, and those without."""

    request: bytes
    prompts: Mapping[str, bytes]
    done: Sequence[PastCall]
    begun: Sequence[PastCall]


@dataclass(frozen=True, slots=True)
class Ended:
    """A session that ended in the ordinary way."""

    sid: str
    owner: str
    reason: str


def left_open(connection: Connection, server: str) -> list[PastSession]:
    """Sessions of that server that have no end."""
    table = sessions.c
    query = select(
        table.id,
        table.sid,
        table.owner,
        table.environment,
        table.digest,
        table.replayable,
        table.secrets,
    ).where(and_(table.server == server, table.ended_at.is_(None)))
    return [PastSession(*row) for row in connection.execute(query)]


def ended_after(connection: Connection, server: str, time: float, limit: int) -> list[Ended]:
    """Sessions of that server that ended later than ``time``, the oldest first."""
    table = sessions.c
    query = (
        select(table.sid, table.owner, table.end_reason)
        .where(and_(table.server == server, table.ended_at > time))
        .order_by(table.ended_at.desc())
        .limit(limit)
    )
    return [Ended(row[0], row[1], row[2] or "Session ended") for row in connection.execute(query)][::-1]


def ending(
    connection: Connection, session: int, ended_at: float, reason: str, lost_by: str | None
) -> SessionEnded:
    """The end of a session that has none, from what is known of its calls. ``lost_by`` is a fault class."""
    table = calls.c
    own = and_(table.session == session, table.number.is_not(None))
    count, faults, total = connection.execute(
        select(func.count(), func.count(table.fault), func.sum(table.reward)).where(own)
    ).one()
    last = connection.execute(
        select(table.reward)
        .where(and_(own, table.reward.is_not(None)))
        .order_by(table.number.desc())
        .limit(1)
    ).scalar()
    finished = connection.execute(select(func.count()).where(and_(own, table.finished))).scalar()
    first = connection.execute(
        select(table.fault).where(and_(own, table.fault.is_not(None))).order_by(table.number).limit(1)
    ).scalar()
    return SessionEnded(
        session, ended_at, reason, lost_by or first, count, faults, last, total, bool(finished), None
    )


def read_content(connection: Connection, session: int) -> PastContent:
    """Everything about a session that is needed to build it again."""
    large = {
        (row.row, row.field): unpack(row.data).encode()
        for row in connection.execute(
            select(values.c.row, values.c.field, values.c.data).where(values.c.session == session)
        )
    }
    shown = {
        row.kind: large.get((session, row.kind), _encoded(row.text))
        for row in connection.execute(
            select(prompts.c.kind, prompts.c.text).where(prompts.c.session == session)
        )
    }
    rows = connection.execute(select(calls).where(calls.c.session == session)).all()
    found = [_call(row, large) for row in rows]
    done = sorted((call for call in found if call.number is not None), key=lambda call: call.number or 0)
    begun = sorted((call for call in found if call.number is None), key=lambda call: call.id)
    return PastContent(large.get((session, "request"), b""), shown, done, begun)


def _call(row: Row[tuple[object, ...]], large: Mapping[tuple[int, str], bytes]) -> PastCall:
    got = row._mapping
    result = got["result"]
    return PastCall(
        id=got["id"],
        number=got["number"],
        kind=got["kind"],
        task_id=got["task_id"],
        key=got["key"],
        name=got["name"],
        input=large.get((got["id"], "input"), _encoded(got["input"])),
        result=large.get((got["id"], "result"), None if result is None else _encoded(result)),
        reward=got["reward"],
        finished=got["finished"],
        discarded=got["discarded"],
        fault=got["fault"],
        fault_id=got["fault_id"],
        message=got["message"],
        started_at=got["started_at"],
    )


def _encoded(text: str | None) -> bytes:
    return b"" if text is None else text.encode()
