"""The ``local`` runtime: environments run in the server's own process.

For notebooks, tests and embedding. Exceptions of author code are contained; a blocked event loop, a crash or
``os._exit`` affects the whole server. The ``process`` runtime contains those too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from ..errors import Faulted, Refused
from ..tracing import mark_log_records, within
from .base import (
    EnvironmentInfo,
    Listener,
    OnResult,
    OpenSession,
    Operation,
    Progress,
    Stop,
    TaskQuery,
    settle,
)
from .execution.episode import Episode, Limits
from .execution.host import EnvironmentHost

__all__ = ["LocalRuntime"]


class LocalRuntime:
    """Runtime for ``classes`` in this process, whose PYTHONHASHSEED is ``hash_seed``; None: random."""

    def __init__(
        self, classes: Sequence[type], limits: Limits, *, threads: int, hash_seed: int | None = None
    ) -> None:
        self._classes = classes
        self._limits = limits
        self._threads = threads
        self._hash_seed = hash_seed
        self.environments: Sequence[EnvironmentInfo] = ()
        self.pending: Sequence[str] = ()

    async def start(self) -> None:
        mark_log_records()
        self._host = EnvironmentHost(self._classes, self._limits, threads=self._threads)
        own = {"hash_seed": self._hash_seed}
        self.environments = tuple(info.model_copy(update=own) for info in self._host.environments)

    async def open(self, request: OpenSession, listener: Listener) -> LocalHandle:
        future: asyncio.Future[Episode] = asyncio.get_running_loop().create_future()

        run = self._host.start_open(request, settle(future))
        try:
            episode = await future
        except asyncio.CancelledError:
            if run is not None:
                run.stop(Faulted("cancelled", "the session was deleted while it was constructed"))
            if not future.cancelled() and future.exception() is None:  # it was opened meanwhile
                with contextlib.suppress(Faulted, Refused):
                    await future.result().close()
            raise
        if episode.needs_setup:
            with within(episode.origin):
                episode.start_setup(lambda _, error: listener.setup_ended(error))
        else:
            listener.setup_ended(None)
        return LocalHandle(episode)

    async def tasks(self, query: TaskQuery) -> bytes:
        return await self._host.tasks(query)

    async def stop(self) -> None:
        if self.environments:  # it had started
            self._host.close()


class LocalHandle:
    """An episode in this process."""

    __slots__ = ("_episode",)

    def __init__(self, episode: Episode) -> None:
        self._episode = episode

    def start(
        self,
        operation: Operation,
        body: bytes,
        on_result: OnResult,
        *,
        limit_s: float,
        progress: Progress | None = None,
    ) -> Stop:
        del limit_s  # no other process could enforce it
        run = self._episode.start(operation, body, on_result, progress)
        return (lambda: None) if run is None else _stopper(run)

    async def close(self) -> None:
        with within(self._episode.origin):
            await self._episode.close()


def _stopper(run: Any) -> Stop:
    return lambda: run.stop(Faulted("cancelled", "the call was cancelled"))
