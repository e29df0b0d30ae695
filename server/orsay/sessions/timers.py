"""Waits: a timer queue for equal delays (a timer wheel of one slot), and shared futures."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeVar

__all__ = ["Delay", "joined"]

T = TypeVar("T")

_LATE_S = 0.01
_TURN_S = 0.001  # not 0: uvloop runs timers that are due already before it reads from sockets


async def joined(future: asyncio.Future[T]) -> T:
    """The result of a future that others wait for too: cancelling one wait does not cancel the future.

    As ``asyncio.shield``, for a fifth of its function calls.
    """
    if not future.done():
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: None if waiter.done() else waiter.set_result(None))
        await waiter
    return future.result()


class Delay:
    """Futures that are done after ``seconds``. Needs a running event loop.

    Equal delays end in the order in which they began, so a queue and one timer serve them all. A future that
    is done earlier costs nothing more. A timer that fires late waits once for another turn of the event loop:
    events that arrived meanwhile may complete the futures first.
    """

    __slots__ = ("_due", "_late", "_loop", "_queue", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._queue: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._late = False

    def future(self) -> asyncio.Future[None]:
        """A new future that is done after the delay, unless the caller sets its result before."""
        future: asyncio.Future[None] = self._loop.create_future()
        due = self._loop.time() + self._seconds
        self._queue.append((due, future))
        if self._timer is None:
            self._wake_at(due)
        return future

    def _wake_at(self, due: float) -> None:
        self._due = due
        self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if now - self._due > _LATE_S and not self._late:
            self._late = True
            self._wake_at(now + _TURN_S)
            return
        self._late = False
        self._timer = None
        queue = self._queue
        while queue and (queue[0][0] <= now or queue[0][1].done()):
            _, future = queue.popleft()
            if not future.done():
                future.set_result(None)
        if queue:
            self._wake_at(queue[0][0])
