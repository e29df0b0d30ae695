"""The contract between sessions and the hosts of environment code.

A runtime loads environment classes and opens sessions; a handle is one open session in it. Both are used
from the server's event loop only. ``tests/runtimes`` is the one test suite that every runtime passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from orsay_protocol.faults import FaultClass
from orsay_protocol.requests import Split
from orsay_protocol.tools import ListToolsOutput
from orsay_protocol.trace import Traceparent
from pydantic import BaseModel, ConfigDict, Field

from ..errors import Faulted, Refused

__all__ = [
    "EnvironmentInfo",
    "Gauge",
    "Gauged",
    "Handle",
    "Listener",
    "OnResult",
    "OpenSession",
    "Operation",
    "Progress",
    "Runtime",
    "Stop",
    "TaskQuery",
    "settle",
    "stop_nothing",
]

Operation: TypeAlias = Literal["prompt", "messages", "task_tools", "call", "score_group"]
Stop: TypeAlias = Callable[[], None]
Progress: TypeAlias = Callable[[bytes], None]
"""Callback with stream events while a call runs; with none, it reports only that the call takes long."""
OnResult: TypeAlias = Callable[[Any, Faulted | Refused | None], None]
"""Callback of a result, called once: with the value, or with the reason why there is none."""


def settle(future: asyncio.Future[Any]) -> OnResult:
    """Callback that settles ``future``, unless that is done or cancelled."""

    def on_result(value: Any, error: Faulted | Refused | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    return on_result


def stop_nothing() -> None:
    """The ``Stop`` of an operation that ended before it began."""


class EnvironmentInfo(BaseModel):
    """Description of an environment, for a server that does not import it."""

    model_config = ConfigDict(frozen=True)

    name: str
    key: str
    description: str
    listing: ListToolsOutput
    splits: tuple[Split, ...]
    supports_score_group: bool
    call_time_limit_s: float | None
    setup_time_limit_s: float | None
    tool_time_limits_s: dict[str, float]
    detached_tools: frozenset[str]
    replayable: bool = False
    serial_tools: tuple[str, ...] = ()
    """Tools of which a session runs one call after the other."""
    exclusive_tools: tuple[str, ...] = ()
    """Tools that run while nothing else is called in their session."""
    fixed_tools: bool = False
    """True if listing the tools of a session runs no code of the environment."""
    hash_seed: int | None = None
    """PYTHONHASHSEED of the processes that play it; None where it is random or not known."""

    @classmethod
    def unknown(cls, name: str) -> EnvironmentInfo:
        """Placeholder for an environment of which only the name is known yet."""
        return cls(
            name=name,
            key=name.lower(),
            description="",
            listing=ListToolsOutput(tools=[]),
            splits=(),
            supports_score_group=False,
            call_time_limit_s=None,
            setup_time_limit_s=None,
            tool_time_limits_s={},
            detached_tools=frozenset(),
        )

    in_order: bool = Field(default=False, exclude=True)
    """Here results arrive in the order in which their calls ran, as they do not over several connections."""

    leads: bool = Field(default=False, exclude=True)
    """Here it is the default, which is known although environments of other places may not be. No other
    process needs to know."""


class OpenSession(BaseModel):
    """A session to open: its task, as ``task_spec`` or as ``split`` and ``index``, and its secrets."""

    key: str
    task_spec: dict[str, Any] | None = None
    split: str | None = None
    index: int | None = None
    toolset_name: str | None = None
    secrets: dict[str, str] = {}
    run: str | None = None
    """Name that the client gives it (X-Orsay-Run), for logs; requests that differ only in it are the same."""
    trace: str | None = None
    """The trace that it belongs to, 32 hex digits; like ``run``, it does not identify the request."""
    traceparent: str | None = None
    """W3C ``traceparent`` of the request; None without one."""

    @property
    def onward(self) -> str | None:
        """The ``traceparent`` for servers behind this one."""
        if self.traceparent is not None or self.trace is None:
            return self.traceparent
        return str(Traceparent(self.trace, self.trace[:16]))


class TaskQuery(BaseModel):
    """A question about the tasks of a split."""

    key: str
    split: str
    ask: Literal["list", "count", "one", "range"]
    index: int | None = None
    start: int | None = None
    stop: int | None = None


class Listener(Protocol):
    """Callbacks of a session: events in its runtime."""

    def setup_ended(self, error: Faulted | Refused | None) -> None:
        """Setup is over; comes once, before or after ``open`` returned."""

    def lost(self, fault: FaultClass, reason: str) -> None:
        """The process or server of the session is gone; running operations were answered before."""


class Handle(Protocol):
    """An open session. Every ``start`` calls its ``on_result`` exactly once, whatever happens.

    A callback and not a future, which would cost each call a turn of the event loop.
    """

    def start(
        self,
        operation: Operation,
        body: bytes,
        on_result: OnResult,
        *,
        limit_s: float,
        progress: Progress | None = None,
    ) -> Stop:
        """Start an operation; the answer is an Outcome for call and score_group, JSON bytes for the others.

        ``limit_s`` is the time after which a place that does not even answer may be given up.
        The returned function asks the operation to stop; it is still answered.
        ``progress`` is called once a call has run for a while; time for which its place kept it waiting does
        not count. Where results come in pieces it gets the stream events before the last ones; these are then
        not part of the Outcome.
        """

    async def close(self) -> None:
        """Stop what runs, tear down once, forget. Raises Faulted when teardown failed."""


class Runtime(Protocol):
    """Host of environment code."""

    @property
    def environments(self) -> Sequence[EnvironmentInfo]:
        """Hosted environments; the first is the default. Another object whenever that changes."""

    @property
    def pending(self) -> Sequence[str]:
        """Places, such as servers that are not up yet, whose environments are not known so far."""

    async def start(self) -> None:
        """Load the environments; returns when sessions can be opened. Raises LoadError."""

    async def open(self, request: OpenSession, listener: Listener) -> Handle:
        """Resolve the task and construct the environment; setup goes on in the background.

        Raises Faulted, InvalidSplit, InvalidIndex, BadTask, Overloaded.
        """

    async def tasks(self, query: TaskQuery) -> bytes:
        """JSON: a list of tasks, a count or one task. Raises Refused or Faulted."""

    async def stop(self) -> None:
        """Release everything; sessions were closed before."""


class Gauge(NamedTuple):
    """A metric of a runtime. ``observe.names`` lists all names and their meaning."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


@runtime_checkable
class Gauged(Protocol):
    """A runtime with metrics; not every one has some."""

    def gauges(self) -> Iterable[Gauge]:
        """Current values; cheap. The label ``runtime`` names the runtime among others of its kind."""
