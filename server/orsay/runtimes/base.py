"""Interface between sessions and the hosts of environment code.

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
    "ClosesByCallback",
    "EnvironmentInfo",
    "Gauge",
    "Gauged",
    "Handle",
    "Listener",
    "OnResult",
    "OpenSession",
    "OpensByCallback",
    "Operation",
    "Progress",
    "Runtime",
    "RuntimeDecorator",
    "Stop",
    "TaskQuery",
    "settle",
    "stop_nothing",
]

Operation: TypeAlias = Literal["prompt", "messages", "task_tools", "call", "score_group"]
Stop: TypeAlias = Callable[[], None]
Progress: TypeAlias = Callable[[bytes], None]
"""Callback with stream events while a call runs; empty bytes only report that the call takes long."""
OnResult: TypeAlias = Callable[[Any, Faulted | Refused | None], None]
"""Callback of a result, called once: with the value, or with the error."""


def settle(future: asyncio.Future[Any]) -> OnResult:
    """Callback that sets the result of ``future``, unless it is done or cancelled."""

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
    repeatable_commands: bool = False
    """True if a replay may run commands in a new sandbox again."""
    serial_tools: tuple[str, ...] = ()
    """Tools whose calls run one after the other in a session."""
    exclusive_tools: tuple[str, ...] = ()
    """Tools that run alone in their session."""
    fixed_tools: bool = False
    """True if listing the tools of a session runs no code of the environment."""
    uses_sandboxes: bool = False
    """True if its code names sandboxes."""
    hash_seed: int | None = None
    """PYTHONHASHSEED of its processes; None if random or unknown."""

    @classmethod
    def unknown(cls, name: str) -> EnvironmentInfo:
        """Placeholder for an environment whose description is not known yet."""
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
    """True if results arrive in the order of execution; several connections do not preserve it."""

    leads: bool = Field(default=False, exclude=True)
    """True for the default environment, which is known even while other runtimes still start. Not sent to
    other processes."""


class OpenSession(BaseModel):
    """A session to open: its task, as ``task_spec`` or as ``split`` and ``index``, and its secrets."""

    key: str
    task_spec: dict[str, Any] | None = None
    split: str | None = None
    index: int | None = None
    toolset_name: str | None = None
    secrets: dict[str, str] = {}
    run: str | None = None
    """Label of the client (X-Orsay-Run), for logs; it does not identify the request."""
    trace: str | None = None
    """Trace id, 32 hex digits; it does not identify the request either."""
    traceparent: str | None = None
    """W3C ``traceparent`` of the request; None without one."""
    sandbox_key: str = ""
    """Key for sandboxes of the session; empty where the server has none."""

    @property
    def onward(self) -> str | None:
        """The ``traceparent`` for servers behind this one."""
        if self.traceparent is not None or self.trace is None:
            return self.traceparent
        return str(Traceparent(self.trace, self.trace[:16]))


class TaskQuery(BaseModel):
    """A query about the tasks of a split."""

    key: str
    split: str
    ask: Literal["list", "count", "one", "range"]
    index: int | None = None
    start: int | None = None
    stop: int | None = None


class Listener(Protocol):
    """Observer of a session's events in its runtime."""

    def setup_ended(self, error: Faulted | Refused | None) -> None:
        """Setup is over; called once, before or after ``open`` returns."""

    def lost(self, fault: FaultClass, reason: str) -> None:
        """The process or server of the session is gone; its running operations failed before this call."""


class Handle(Protocol):
    """An open session. Every ``start`` calls its ``on_result`` exactly once, whatever happens.

    Callbacks in place of futures save each call a turn of the event loop.
    """

    __slots__ = ()

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

        ``limit_s``: time after which the host may be killed if it is unresponsive too.
        The returned function requests a stop; ``on_result`` is still called.
        ``progress`` is called once a call has run for a while, queueing not included. If results come in
        pieces it gets all stream events but the last ones; these are then not part of the Outcome.
        """

    async def close(self) -> None:
        """Stop running operations and tear down, once. Raises Faulted if teardown fails."""


class Runtime(Protocol):
    """Host of environment code."""

    @property
    def environments(self) -> Sequence[EnvironmentInfo]:
        """Hosted environments; the first is the default. A new object after each change."""

    @property
    def pending(self) -> Sequence[str]:
        """Names of runtimes, such as servers that are not up yet, whose environments are unknown."""

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


class RuntimeDecorator:
    """Base of decorators of a runtime: they change how sessions are opened, and pass everything else on."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def wrapped(self) -> Runtime:
        """The runtime below."""
        return self._runtime

    @property
    def environments(self) -> Sequence[EnvironmentInfo]:
        return self._runtime.environments

    @property
    def pending(self) -> Sequence[str]:
        return self._runtime.pending

    async def start(self) -> None:
        await self._runtime.start()

    async def tasks(self, query: TaskQuery) -> bytes:
        return await self._runtime.tasks(query)

    async def stop(self) -> None:
        await self._runtime.stop()


class ClosesByCallback(Handle):
    """Base of handles that close without a task too."""

    __slots__ = ()

    def start_close(self, on_result: OnResult) -> None:
        """As ``close``; stops the opening where that has not ended."""
        raise NotImplementedError


class OpensByCallback:
    """Base of runtimes that open sessions without a task too, where nothing has to be awaited first."""

    def start_open(
        self, request: OpenSession, listener: Listener, on_result: OnResult
    ) -> ClosesByCallback | None:
        """As ``open``; None where ``open`` has to be awaited.

        ``on_result`` is called later, with None or the error, and not for a session that is closed meanwhile.
        """
        raise NotImplementedError


class Gauge(NamedTuple):
    """A metric of a runtime. ``observe.names`` lists all names and their meaning."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


@runtime_checkable
class Gauged(Protocol):
    """A runtime with metrics of its own."""

    def gauges(self) -> Iterable[Gauge]:
        """Current values; cheap. The label ``runtime`` identifies the runtime."""
