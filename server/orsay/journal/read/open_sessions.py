"""Sessions that a killed server left open, read from the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orsay_protocol.faults import FaultClass
from pydantic_core import to_json
from sqlalchemy import Connection, Row, and_, exists, func, select

from ..records import SessionEnded
from ..schema import asks, calls, prompts, sandbox_events, sessions, values
from ..values import unpack
from .intervals import finite

__all__ = [
    "Ended",
    "PastAsk",
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

    ``lost`` is the reason of its end, ``lost_by`` the class of that fault; ``results`` and ``ends`` are the
    numbers of results, and of all ended operations, that the journal must have, if known.
    """

    id: int
    sid: str
    owner: str
    environment: str
    digest: str
    replayable: bool
    secrets: bool
    hash_seed: int | None
    used_sandbox: bool
    lost: str = "server restarted"
    lost_by: FaultClass = "session_gone"
    results: int | None = None
    ends: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Owner and id of the session: two owners may choose the same id."""
        return self.owner, self.sid


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call as it was recorded. ``number`` is None for one that had no result yet. JSON in bytes.

    ``after`` is how much of its session had ended when it began, None when an older version recorded it.
    """

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
    after: int | None

    @property
    def refused(self) -> bool:
        """True if it was refused after its stream had begun: no environment code ran."""
        return self.fault == "overloaded"

    @property
    def body(self) -> bytes:
        """Request body that repeats the call."""
        if self.kind != "call":
            return self.input
        return b'{"name":' + to_json(self.name) + b',"input":' + self.input + b"}"


@dataclass(frozen=True, slots=True)
class PastAsk:
    """A request for prompt, messages or tools, answered as the ``number``-th ended operation of the session.

    ``digest`` is that of the answer; None for the first of its kind, which is kept whole, and for a fault.
    """

    number: int
    kind: str
    after: int
    digest: str | None
    fault: str | None


@dataclass(frozen=True, slots=True)
class PastContent:
    """Records of a session: calls with a result, in the order of their results, and those without.

    ``asks`` are in the order of their answers. Of answers in ``prompts`` without one no order is known.
    """

    request: bytes
    prompts: Mapping[str, bytes]
    asks: Sequence[PastAsk]
    done: Sequence[PastCall]
    begun: Sequence[PastCall]


@dataclass(frozen=True, slots=True)
class Ended:
    """A session with an end record."""

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
        table.hash_seed,
        exists().where(sandbox_events.c.session == table.id),
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
    count, faults = connection.execute(select(func.count(), func.count(table.fault)).where(own)).one()
    scored = select(table.reward).where(and_(own, table.reward.is_not(None))).order_by(table.number)
    rewards = connection.scalars(scored).all()  # summed here: PostgreSQL refuses an infinite sum
    last, total = (rewards[-1], finite(sum(rewards))) if rewards else (None, None)
    finished = connection.execute(select(func.count()).where(and_(own, table.finished))).scalar()
    first = connection.execute(
        select(table.fault).where(and_(own, table.fault.is_not(None))).order_by(table.number).limit(1)
    ).scalar()
    return SessionEnded(
        session, ended_at, reason, lost_by or first, count, faults, last, total, bool(finished), None
    )


def read_content(connection: Connection, session: int) -> PastContent:
    """Records from which a session can be rebuilt."""
    large = {
        (row.row, row.field): unpack(row.data).encode()
        for row in connection.execute(
            select(values.c.row, values.c.field, values.c.data).where(
                values.c.session == session, values.c.field != "output"
            )
        )
    }
    shown = {
        row.kind: large.get((session, row.kind), _encoded(row.text))
        for row in connection.execute(
            select(prompts.c.kind, prompts.c.text).where(prompts.c.session == session)
        )
    }
    columns = asks.c.number, asks.c.kind, asks.c.after, asks.c.digest, asks.c.fault
    asked = select(*columns).where(asks.c.session == session).order_by(asks.c.number)
    rows = connection.execute(select(calls).where(calls.c.session == session)).all()
    found = [_call(row, large) for row in rows]
    done = sorted((call for call in found if call.number is not None), key=lambda call: call.number or 0)
    begun = sorted((call for call in found if call.number is None), key=_began)
    asked_for = [PastAsk(*row) for row in connection.execute(asked)]
    return PastContent(large.get((session, "request"), b""), shown, asked_for, done, begun)


def _began(call: PastCall) -> tuple[int, float, int]:
    return call.after or 0, call.started_at, call.id


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
        after=got["after"],
    )


def _encoded(text: str | None) -> bytes:
    return b"" if text is None else text.encode()
