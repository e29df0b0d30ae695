"""Read timeouts of streams, with one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from .http import Broken

__all__ = ["ReadTimeouts", "Reading"]


class Reading:
    """Time of the last bytes of a stream, and the task that reads it."""

    __slots__ = ("at", "expired", "task")

    def __init__(self, task: asyncio.Task[object], at: float) -> None:
        self.task = task
        self.at = at
        self.expired = False


class ReadTimeouts:
    """Cancels the reader of a stream without data for ``limit_s``, or up to an eighth longer.

    One timer serves all streams: one for each would cost more than the forwarding. Needs a running event
    loop.
    """

    def __init__(self, limit_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit_s = limit_s
        self._open: set[Reading] = set()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watch(self) -> Iterator[Reading]:
        """Guard the reading of one stream; the reader updates ``at`` with all data. Raises Broken."""
        task = asyncio.current_task()
        assert task is not None
        reading = Reading(task, self._loop.time())
        self._open.add(reading)
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s / 8, self._tick)
        try:
            yield reading
        except asyncio.CancelledError:
            if reading.expired and task.uncancel() == 0:
                raise Broken("no data for too long", may_have_run=True) from None
            raise
        finally:
            self._open.discard(reading)

    def _tick(self) -> None:
        self._timer = None
        before = self._loop.time() - self._limit_s
        for reading in self._open:
            if reading.at < before and not reading.expired:
                reading.expired = True
                reading.task.cancel()
        if self._open:
            self._timer = self._loop.call_later(self._limit_s / 8, self._tick)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
