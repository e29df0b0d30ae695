"""Event loop, connection and open episodes of one environment in one process."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any, TypeVar

from orsay_client import errors
from orsay_client.loop_thread import LoopThread

from .episode import Episode
from .source import Source

__all__ = ["EpisodePool"]

_T = TypeVar("_T")
_CLOSE_S = 30.0
_FIRST = 100


class EpisodePool:
    """Plays episodes on a background event loop, so that keep-alive continues while a trainer computes.

    ``waited_s`` is the total time that callers were blocked: the cost of the environment to training.
    ``metered`` has the time and ``waited_s`` of the last logged metrics. ``beside`` is another pool whose
    loop this one shares, so that one coroutine can play on both.
    """

    def __init__(
        self, make_source: Callable[[], Source], *, concurrency: int, beside: EpisodePool | None = None
    ) -> None:
        self.pid = os.getpid()
        self.waited_s = 0.0
        self.step: int | None = None  # of the trainer, once that is known
        self.metered = (time.perf_counter(), 0.0)
        self._loop: LoopThread = LoopThread("orsay-trl") if beside is None else beside._loop.share()
        self._left = False
        self._open: set[Episode] = set()
        self._prepared: dict[Hashable, deque[Episode]] = {}
        self._closed = False
        try:
            self.source = self._loop.run(_made(make_source))
            self._slots = self._loop.run(_made(lambda: asyncio.Semaphore(concurrency)))
        except BaseException:
            self._leave()
            raise
        # Like atexit, but before a process of multiprocessing waits for others to empty its queues.
        Finalize(None, _close_at_exit, args=(weakref.ref(self),), exitpriority=_FIRST)

    @property
    def open_episodes(self) -> int:
        """Number of episodes that have a session, or are about to."""
        return len(self._open)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Result of ``work`` on the loop; the caller waits, and the wait is counted."""
        began = time.perf_counter()
        try:
            return self._loop.run(work)
        finally:
            self.waited_s += time.perf_counter() - began

    def play(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Result of ``work`` that includes more than the environment: unlike ``run``, no wait is counted."""
        return self._loop.run(work)

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Begin ``work`` on the loop without waiting."""
        return self._loop.start(work)

    async def open(self, episode: Episode) -> None:
        """Open an episode, within the limit ``concurrency``."""
        self._open.add(episode)
        async with self._slots:
            await episode.open()

    async def close(self, episodes: Iterable[Episode]) -> None:
        """End the sessions of these episodes concurrently."""

        async def end(episode: Episode) -> None:
            async with self._slots:
                await episode.close()
            self._open.discard(episode)

        await asyncio.gather(*(end(episode) for episode in episodes))

    def prepare(self, wanted: Iterable[tuple[Hashable, Episode]]) -> list[Episode]:
        """Open all these episodes concurrently; ``take`` returns them by key, in order."""
        pairs = list(wanted)

        async def open_all() -> None:
            async with asyncio.TaskGroup() as group:
                for _, episode in pairs:
                    group.create_task(self.open(episode))

        try:
            self.run(open_all())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        for key, episode in pairs:
            self._prepared.setdefault(key, deque()).append(episode)
        return [episode for _, episode in pairs]

    def take(self, key: Hashable) -> Episode | None:
        """The next prepared episode of ``key``."""
        waiting = self._prepared.get(key)
        if not waiting:
            return None
        episode = waiting.popleft()
        if not waiting:
            del self._prepared[key]
        return episode

    def close_episodes(self) -> None:
        """End all sessions on the server; the pool can be used again."""
        self._prepared.clear()
        if self._open and not self._closed:
            self._loop.run(self.close(list(self._open)))

    def shut(self) -> None:
        """End all sessions, the connection and the thread; safe to call twice, and in a forked child."""
        if self._closed or os.getpid() != self.pid:
            return
        self._closed = True
        try:
            self._loop.run(self._end())
        except errors.ClientClosed:
            pass  # the loop and its connections are gone
        finally:
            self._leave()

    def abandon(self) -> None:
        """``shut`` in the background, for a finalizer, which may run at any point and on any thread."""
        if not self._closed and os.getpid() == self.pid:
            self._loop.end_with(self._end(), self._leave)

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            self._loop.leave()

    async def _end(self) -> None:
        with suppress(TimeoutError):  # the server expires the sessions that are left
            async with asyncio.timeout(_CLOSE_S):
                await self.close(list(self._open))
                await self.source.aclose()


async def _made(make: Callable[[], _T]) -> _T:
    return make()


def _close_at_exit(pool: weakref.ref[EpisodePool]) -> None:
    alive = pool()
    if alive is not None:
        alive.shut()
