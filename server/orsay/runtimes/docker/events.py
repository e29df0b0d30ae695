"""Subscription to the engine's events about our containers; renewed after an outage."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from ...errors import EngineError
from ...logs import get_logger
from .engine import Engine, Event, Stream
from .pool import Pool
from .replica import Replica, reason_of

__all__ = ["Events"]

_log = get_logger(__name__)
_RETRY_S = (0.2, 1.0, 2.0, 5.0)
_REPLAY_S = 0.5
_CHECK_S = 10.0  # for an end without an event


class Events:
    """Listener for the ends of containers, until ``stop``."""

    def __init__(self, engine: Engine, labels: Mapping[str, str], pool: Pool, *, memory: str | None) -> None:
        self._engine = engine
        self._labels = labels
        self._pool = pool
        self._memory = memory
        self._short_of_memory: set[str] = set()
        self._stream: Stream | None = None
        self._broken = asyncio.Event()
        self._since: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises EngineError."""
        await self._listen()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._stream is not None:
            self._stream.close()

    async def _listen(self) -> None:
        self._broken.clear()
        try:
            self._stream = await self._engine.events(
                self._labels, on_event=self._on_event, on_end=self._broken.set, since=self._since
            )
        except EngineError:
            self._broken.set()
            raise

    async def _run(self) -> None:
        """Renew a lost subscription, and poll the running containers at intervals."""
        failures = 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_S):
                    await self._broken.wait()
            try:
                if self._broken.is_set():
                    await asyncio.sleep(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
                    failures += 1
                    await self._listen()
                    await asyncio.sleep(_REPLAY_S)  # replayed events have reasons, a poll has none
                await self._compare()
                failures = 0
            except EngineError as exc:
                _log.warning("engine_unreachable", error=str(exc))

    async def _compare(self) -> None:
        started = [each for each in self._pool.replicas if each.running]
        found = await self._engine.containers(self._labels)
        running = {each["Id"] for each in found if each["State"] in ("running", "paused", "restarting")}
        for replica in started:
            if replica.id not in running and not replica.gone:
                self._pool.lost(replica, "is gone")

    def _on_event(self, event: Event) -> None:
        self._since = event["timeNano"] / 1e9
        container = event["Actor"]["ID"]
        if event["Action"] == "oom":
            self._short_of_memory.add(container)
        elif event["Action"] == "die":
            replica = self._find(container)
            starved = container in self._short_of_memory
            self._short_of_memory.discard(container)
            if replica is not None:
                code = _exit_code(event["Actor"].get("Attributes") or {})
                self._pool.lost(replica, reason_of(code, out_of_memory=starved, memory=self._memory))

    def _find(self, container: str) -> Replica | None:
        return next((each for each in self._pool.replicas if each.id == container), None)


def _exit_code(attributes: Mapping[str, Any]) -> int:
    try:
        return int(attributes.get("exitCode", 0))
    except ValueError:
        return 0
