"""Pings that keep idle sessions alive: one task for all sessions of a client."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Protocol

__all__ = ["Keepalive", "Pinged"]

_IN_FLIGHT = 64
_log = logging.getLogger("orsay_client")


class Pinged(Protocol):
    """Interface of a session that gets pings."""

    @property
    def touched_at(self) -> float:
        """Loop time of the last request, which spares the server a ping."""
        ...

    def ping(self) -> Awaitable[bool]:
        """Send one ping; False if the session needs no more of them."""
        ...


class Keepalive:
    """Pings each watched session that was quiet for ``interval_s``.

    The task runs only while there are sessions. At most 64 pings are in flight at a time: a slow server
    delays pings but does not accumulate connections.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._due: list[tuple[float, int, Pinged]] = []
        self._watched: dict[Pinged, asyncio.Task[None] | None] = {}
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._task: asyncio.Task[None] | None = None

    def watch(self, session: Pinged) -> None:
        self._watched[session] = None
        self._schedule(session, asyncio.get_running_loop().time() + self._interval_s)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="orsay-keepalive")

    def unwatch(self, session: Pinged) -> None:
        """Stop pinging; a ping in flight is cancelled. Safe to call twice."""
        ping = self._watched.pop(session, None)
        if ping is not None:
            ping.cancel()
        if not self._watched:
            self._due.clear()
        self._wake.set()

    async def aclose(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _schedule(self, session: Pinged, at: float) -> None:
        heapq.heappush(self._due, (at, next(self._order), session))
        self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._watched:
            async with asyncio.TaskGroup() as pings:
                while self._watched:
                    if not self._due or self._due[0][0] > loop.time():
                        await self._sleep(self._due[0][0] - loop.time() if self._due else None)
                        continue
                    _, _, session = heapq.heappop(self._due)
                    if session not in self._watched:
                        continue
                    due = session.touched_at + self._interval_s
                    if due > loop.time():
                        self._schedule(session, due)
                        continue
                    await self._slots.acquire()
                    if session in self._watched:
                        ping = self._watched[session] = pings.create_task(self._ping(session))
                        ping.add_done_callback(self._leave_slot)
                    else:
                        self._slots.release()

    async def _sleep(self, delay_s: float | None) -> None:
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._wake.wait()

    async def _ping(self, session: Pinged) -> None:
        goes_on = True
        try:
            goes_on = await session.ping()
        except Exception:  # the loop of all sessions must outlive a fault in one
            _log.exception("a keep-alive ping failed in an unexpected way")
        if session not in self._watched:
            return
        self._watched[session] = None
        if goes_on:
            self._schedule(session, asyncio.get_running_loop().time() + self._interval_s)
        else:
            self.unwatch(session)

    def _leave_slot(self, _: asyncio.Task[None]) -> None:
        """Callback of a ping, also of one that was cancelled before it ran."""
        self._slots.release()
