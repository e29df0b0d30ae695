"""Live view of the server: a snapshot each second, only while a client listens.

Counting visits every session, so it runs in steps that do not block the event loop; the number of sessions in
a snapshot is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic_core import to_json

from ..logs import get_logger
from ..sessions.labels import parse_labels
from ..sessions.lifecycle import State
from ..sessions.session import Session, SessionKey
from .answers import plain
from .sandboxes import LivingSandbox

__all__ = [
    "Feed",
    "Latency",
    "Listener",
    "LiveSession",
    "Rates",
    "Snapshot",
    "States",
    "Tally",
    "count",
]

_log = get_logger(__name__)
_STEP = 500
_SHOWN = 200
_EVERY_S = 1.0
_AT_LEAST_S = 0.2

Rates: TypeAlias = Callable[[], tuple[float, float, float | None, float | None, float | None]]
"""Calls and faults per second, and three quantiles of the time of a call in milliseconds: 50%, 95%, 99%."""


class States(BaseModel):
    """Sessions by their state."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    opening: int = 0
    starting: int = 0
    ready: int = 0
    failed: int = 0
    closing: int = 0


class Latency(BaseModel):
    """Durations of recent calls in milliseconds; null without calls."""

    p50: float | None
    p95: float | None
    p99: float | None


class LiveSession(BaseModel):
    """One session. ``id`` is its id in the journal, null without one; ``running`` counts calls that run."""

    sid: str
    id: str | None
    environment: str
    task: str
    run: str | None
    owner: str
    state: State
    age_s: float
    idle_s: float
    calls: int
    running: int
    reward: float | None
    finished: bool


class Snapshot(BaseModel):
    """The server at one moment, seconds since 1970.

    Sessions and sandboxes are those of the key that asks; rates and latency are of the whole server.
    ``sandboxes`` is null where the server has none.
    """

    at: float
    sessions: States
    calls_running: int
    calls_per_s: float
    faults_per_s: float
    latency_ms: Latency
    total: int
    sandboxes: list[LivingSandbox] | None
    list: list[LiveSession]


@dataclass(slots=True)
class Tally:
    """Sessions counted: by owner and state, by owner and environment, and the newest of some owners."""

    states: Counter[tuple[str, str]] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)
    environments: Counter[tuple[str, str]] = field(default_factory=Counter)
    running_in: Counter[tuple[str, str]] = field(default_factory=Counter)
    newest: dict[str, list[Session]] = field(default_factory=dict)


async def count(live: Mapping[SessionKey, Session], owners: Collection[str] = ()) -> Tally:
    """Count all sessions, the newest first, and keep the newest of each of ``owners``."""
    tally = Tally(newest={owner: [] for owner in owners})
    sessions = list(live.values())
    for number, session in enumerate(reversed(sessions), 1):
        if session.state == "closed":
            continue
        owner, key = session.owner, session.info.key
        tally.states[owner, session.state] += 1
        tally.environments[owner, key] += 1
        if session.calls is not None and session.calls.running:
            tally.running[owner] += session.calls.running
            tally.running_in[owner, key] += session.calls.running
        newest = tally.newest.get(owner)
        if newest is not None and len(newest) < _SHOWN:
            newest.append(session)
        if not number % _STEP:
            await asyncio.sleep(0)
    return tally


class Listener:
    """One stream of snapshots; a slow client skips some."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._latest: bytes | None = None
        self._news = asyncio.Event()
        self.ended = False

    def offer(self, snapshot: bytes) -> None:
        self._latest = snapshot
        self._news.set()

    def end(self) -> None:
        """End the stream: no snapshot follows."""
        self.ended = True
        self._news.set()

    async def next(self) -> bytes | None:
        """JSON of a snapshot that was not returned before; None at the end."""
        await self._news.wait()
        self._news.clear()
        return None if self.ended else self._latest


class Feed:
    """Source of snapshots: one task, which runs while there are listeners.

    ``sandboxes`` gives those of an owner, each as a LivingSandbox; None where there are none.
    """

    def __init__(
        self,
        live: Mapping[SessionKey, Session],
        rates: Rates,
        sandboxes: Callable[[str], Sequence[dict[str, object]]] | None = None,
    ) -> None:
        self._live = live
        self._sandboxes = sandboxes
        self._rates = rates
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._came = asyncio.Event()
        self._closed = False
        self._now = time.monotonic  # as sessions do

    def __len__(self) -> int:
        return len(self._listeners)

    def listeners(self, owner: str) -> int:
        """Streams of that owner."""
        return sum(listener.owner == owner for listener in self._listeners)

    @property
    def closed(self) -> bool:
        """True once all streams have ended."""
        return self._closed

    @contextlib.contextmanager
    def listening(self, owner: str) -> Iterator[Listener]:
        """Snapshots for that owner, the first one soon."""
        listener = Listener(owner)
        if self._closed:
            listener.end()
        self._listeners.add(listener)
        self._came.set()
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        """End every stream."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for listener in self._listeners:
            listener.end()

    async def _run(self) -> None:
        try:
            while self._listeners:
                self._came.clear()
                try:
                    await self._publish()
                except Exception:
                    _log.exception("snapshot_failed")
                await asyncio.sleep(_AT_LEAST_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_EVERY_S - _AT_LEAST_S):
                        await self._came.wait()
        finally:
            self._task = None

    async def _publish(self) -> None:
        tally = await count(self._live, {listener.owner for listener in self._listeners})
        made = {owner: to_json(self._snapshot(owner, tally)) for owner in tally.newest}
        for listener in self._listeners:
            if listener.owner in made:
                listener.offer(made[listener.owner])

    def _snapshot(self, owner: str, tally: Tally) -> dict[str, object]:
        """Make a Snapshot without validation, which is costly."""
        calls_per_s, faults_per_s, p50, p95, p99 = self._rates()
        states = {name: tally.states[owner, name] for name in States.model_fields}
        return {
            "at": time.time(),
            "sessions": states,
            "calls_running": tally.running[owner],
            "calls_per_s": calls_per_s,
            "faults_per_s": faults_per_s,
            "latency_ms": {"p50": p50, "p95": p95, "p99": p99},
            "total": sum(states.values()),
            "sandboxes": None if self._sandboxes is None else self._sandboxes(owner),
            "list": [_show(session, self._now()) for session in tally.newest[owner]],
        }


def _show(session: Session, now: float) -> dict[str, object]:
    """Make a LiveSession."""
    record, run = session.record, parse_labels(session.run).run
    return {
        "sid": session.sid,
        "id": None if record is None else str(record.id),
        "environment": session.info.name,
        "task": session.task,
        "run": None if run is None else plain(run),
        "owner": session.owner,
        "state": session.state,
        "age_s": round(now - session.created_at, 3),
        "idle_s": 0.0 if session.busy else round(max(0.0, now - session.touched_at), 3),
        "calls": session.call_count,
        "running": 0 if session.calls is None else session.calls.running,
        "reward": session.reward,
        "finished": session.finished,
    }
