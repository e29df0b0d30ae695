"""What sessions without an end have come to: they live, or their server was killed."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, select

from ..schema import calls
from .intervals import finite

__all__ = ["SoFar", "so_far"]


@dataclass(slots=True)
class SoFar:
    """What would stand in the session's row if it ended now."""

    calls: int = 0
    faults: int = 0
    fault: str | None = None
    reward: float | None = None
    reward_sum: float | None = None
    finished: bool = False


def so_far(connection: Connection, which: ColumnElement[bool]) -> dict[int, SoFar]:
    """By session, from those of its calls for which ``which`` holds; nothing for a session without calls."""
    rows = connection.execute(
        select(calls.c.session, calls.c.reward, calls.c.finished, calls.c.discarded, calls.c.fault)
        .where(which)
        .order_by(calls.c.session, calls.c.number)
    )
    found: dict[int, SoFar] = {}
    for session, reward, finished, discarded, fault in rows:
        each = found.setdefault(session, SoFar())
        each.calls += 1
        if fault is not None:
            each.faults += 1
            each.fault = each.fault or fault
        if discarded:
            continue
        each.finished = each.finished or finished
        if reward is not None:
            each.reward = reward
            each.reward_sum = (each.reward_sum or 0.0) + reward
    for each in found.values():
        each.reward_sum = finite(each.reward_sum)
    return found
