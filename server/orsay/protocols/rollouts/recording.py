"""Recording of rollouts: rows of the journal from events, for rollouts that are there, in bounds."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from orsay_protocol.redact import Redactor

from ...errors import JournalDown
from ...journal.read.rollouts import known_rollouts
from ...journal.records import RolloutLogged, RolloutOpened
from ...journal.write.writer import Writer
from .events import Clean, Message, Started, logged_row, opened_row, read_events, update_row

__all__ = ["Outcome", "Recording"]

_LATELY_S = 60.0
_MOST_LATELY = 10_000


@dataclass(slots=True)
class Outcome:
    """What became of the events of one request: ``stored`` ones, and client's ids of rollouts with others.

    ``unknown`` rollouts are not there, or not of this owner; ``full`` ones have as many messages as are kept.
    """

    stored: int = 0
    unknown: list[str] = field(default_factory=list)
    full: list[str] = field(default_factory=list)


class Recording:
    """Recorder of rollouts; ``most_messages`` bounds each of them."""

    def __init__(self, writer: Writer, *, most_messages: int) -> None:
        self._writer = writer
        self._most = most_messages
        self._lately: OrderedDict[int, float] = OrderedDict()  # a busy journal may not show them yet

    async def record(self, body: bytes, owner: str, client: str, hides: Sequence[Redactor]) -> Outcome:
        """Store the events, and return when they are durable. An event that is there already stays.

        Raises ValidationError, with nothing stored, and JournalDown.
        """
        opened, logged = await asyncio.to_thread(_rows, body, owner, client, hides)
        made = {row.id for row, _ in opened}
        ids = {row.rollout for row, _ in logged}
        counts = await self._writer.read(partial(known_rollouts, ids=ids)) if ids else {}
        outcome = Outcome()
        kept = []
        for row, event in logged:
            there = row.rollout in made or row.rollout in self._lately
            count = counts.get(row.rollout, 0 if there else None)
            if count is None:
                _note(outcome.unknown, event)
            elif count >= self._most:
                _note(outcome.full, event)
            else:
                counts[row.rollout] = count + 1
                kept.append(row)
        await self._write([*(row for row, _ in opened), *kept])
        self._remember(made)
        outcome.stored = len(opened) + len(kept)
        return outcome

    def _remember(self, made: Iterable[int]) -> None:
        now = time.monotonic()
        self._lately.update(dict.fromkeys(made, now))
        while self._lately:
            first = next(iter(self._lately))
            if len(self._lately) <= _MOST_LATELY and self._lately[first] > now - _LATELY_S:
                return
            del self._lately[first]

    async def _write(self, rows: Sequence[RolloutOpened | RolloutLogged]) -> None:
        durable: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        left = len(rows)

        def settled(well: bool) -> None:
            nonlocal left
            left -= 1
            if not durable.done() and (not well or left == 0):
                durable.set_result(well)

        for row in rows:
            self._writer.add(row, settled)
        if rows and not await durable:
            raise JournalDown(f"the journal did not take the rollout: {self._writer.health.reason}")


def _note(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)


def _rows(
    body: bytes, owner: str, client: str, hides: Sequence[Redactor]
) -> tuple[list[tuple[RolloutOpened, str]], list[tuple[RolloutLogged, str]]]:
    """Rows, each with the client's id of its rollout; for a thread, since texts may be long."""
    clean, now = Clean(hides), time.time()
    opened: list[tuple[RolloutOpened, str]] = []
    logged: list[tuple[RolloutLogged, str]] = []
    for event in read_events(body).events:
        if isinstance(event, Started):
            opened.append((opened_row(event, clean, owner=owner, client=client, now=now), event.eventId))
        elif isinstance(event, Message):
            logged.append((logged_row(event, clean, owner=owner), event.rolloutEventId))
        else:
            logged.append((update_row(event, clean, owner=owner), event.eventId))
    return opened, logged
