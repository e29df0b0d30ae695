"""Timer queue for many waits of equal length: a timer wheel of one slot."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Delay"]


class Delay:
    """Futures that are done after ``seconds``. Needs a running event loop.

    Equal delays end in the order in which they began, so a queue and one timer serve them all. A future that
    is done earlier costs nothing more.
    """

    __slots__ = ("_loop", "_queue", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._queue: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def future(self) -> asyncio.Future[None]:
        """A new future that is done after the delay, unless the caller sets its result before."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.append((self._loop.time() + self._seconds, future))
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._tick)
        return future

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        queue = self._queue
        while queue and (queue[0][0] <= now or queue[0][1].done()):
            _, future = queue.popleft()
            if not future.done():
                future.set_result(None)
        if queue:
            self._timer = self._loop.call_at(queue[0][0], self._tick)
