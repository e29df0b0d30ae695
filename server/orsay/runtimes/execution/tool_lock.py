"""Readers-writer lock over the calls of one session, plus one mutex for each tool.

Section 9 of the standard: calls of one tool run one after another, different tools overlap, ``concurrent``
tools overlap with themselves too, and an ``exclusive`` tool runs alone: it waits for all running calls and
has priority over calls that arrived later.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ...authoring.tools import ToolRow

__all__ = ["ToolLock"]


@dataclass(slots=True, eq=False)
class _Waiter:
    row: ToolRow
    admitted: asyncio.Future[None]


class ToolLock:
    """Lock of one session: ``exclusive`` tools are writers, all others readers. For the event loop only."""

    __slots__ = ("_busy", "_exclusive", "_running", "_waiting")

    def __init__(self) -> None:
        self._running = 0
        self._exclusive = False
        self._busy: set[str] = set()
        self._waiting: list[_Waiter] = []

    def try_enter(self, row: ToolRow, *, waited: bool = False) -> bool:
        """Enter at once, or return False without effect. ``waited``: a queued call whose turn it is."""
        if self._exclusive:
            return False
        if (
            self._waiting
            and not waited
            and any(w.row.exclusive or w.row.name == row.name for w in self._waiting)
        ):
            return False
        if row.exclusive:
            if self._running:
                return False
            self._exclusive = True
        elif not row.concurrent:
            if row.name in self._busy:
                return False
            self._busy.add(row.name)
        self._running += 1
        return True

    async def enter(self, row: ToolRow) -> None:
        """Wait for admission; cancellation leaves the queue."""
        if self.try_enter(row):
            return
        waiter = _Waiter(row, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            await waiter.admitted
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                self._wake()
            elif waiter.admitted.done() and not waiter.admitted.cancelled():
                self.leave(row)
            raise

    def leave(self, row: ToolRow) -> None:
        self._running -= 1
        if row.exclusive:
            self._exclusive = False
        elif not row.concurrent:
            self._busy.discard(row.name)
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        first = next((w for w in self._waiting if w.row.exclusive), None)
        for waiter in [first] if first is not None else list(self._waiting):
            if waiter.admitted.done():  # cancelled; its own task removes it from the queue
                continue
            if self.try_enter(waiter.row, waited=True):
                self._waiting.remove(waiter)
                waiter.admitted.set_result(None)
