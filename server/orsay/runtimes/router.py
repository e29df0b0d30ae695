"""Router over several runtimes: merges discovery, and opens each session in its environment's runtime.

Members can be added and removed while sessions run: a removed one takes no new sessions, and is stopped after
its last session. The overhead is one object per session, and nothing per call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orsay_protocol.faults import FaultClass

from ..errors import ConfigError, Faulted, LoadError, Overloaded, Refused, ShuttingDown, UnknownEnvironment
from ..logs import get_logger
from ..suggest import did_you_mean
from .base import (
    EnvironmentInfo,
    Gauge,
    Gauged,
    Handle,
    Listener,
    OnResult,
    OpenSession,
    Operation,
    Progress,
    Runtime,
    Stop,
    TaskQuery,
)

__all__ = ["Member", "RouterHandle", "RouterRuntime", "hosts_nothing"]

_log = get_logger(__name__)


class Member:
    """One of the runtimes, with the environments and the number of sessions that it may serve.

    ``label`` names it in errors, ``metric_label`` in metrics. ``serve`` maps names of its environments to
    names on this server, and excludes the others; None takes all under their own names. The time limits, in
    seconds, apply to environments that set none. ``retire`` is called when the member is removed, while
    sessions may still run. ``sandboxes``: its sessions use those of this server, wherever their code runs.
    """

    def __init__(
        self,
        label: str,
        runtime: Runtime,
        *,
        serve: Mapping[str, str] | None = None,
        max_sessions: int | None = None,
        call_time_limit_s: float | None = None,
        setup_time_limit_s: float | None = None,
        retire: Callable[[], None] | None = None,
        metric_label: str = "",
        sandboxes: bool = False,
    ) -> None:
        self.label = label
        self.metric_label = metric_label or label
        self.runtime = runtime
        self.serve = None if serve is None else {name.lower(): here for name, here in serve.items()}
        self.max_sessions = max_sessions
        self.sandboxes = sandboxes
        self.sessions = 0
        self.retire = retire
        self._limits = {"call_time_limit_s": call_time_limit_s, "setup_time_limit_s": setup_time_limit_s}
        self._users = 0
        self._leaves = False
        self._unused = asyncio.Event()

    def offers(self) -> list[tuple[str, EnvironmentInfo]]:
        """Served environments: their key at the runtime, and their description here."""
        if self.serve is None:
            return [(info.key, self._here(info)) for info in self.runtime.environments]
        there = {info.key: info for info in self.runtime.environments}
        return [(key, self._here(there[key])) for key in self.serve if key in there]

    def missing(self) -> str | None:
        """Error about a name in ``serve`` that the runtime lacks; None while that is unknown."""
        if self.serve is None or self.runtime.pending:
            return None
        there = [info.key for info in self.runtime.environments]
        for name in self.serve:
            if name not in there:
                return f"{self.label} has no environment {name!r} to serve{did_you_mean(name, there)}"
        return None

    def _here(self, info: EnvironmentInfo) -> EnvironmentInfo:
        changes: dict[str, object] = {
            name: limit
            for name, limit in self._limits.items()
            if limit is not None and getattr(info, name) is None
        }
        name = info.name if self.serve is None else self.serve[info.key]
        if name.lower() != info.key:
            changes |= {"name": name, "key": name.lower()}
        return info.model_copy(update=changes) if changes else info

    def enter(self) -> None:
        """Count a user of the runtime, which must not be stopped meanwhile."""
        self._users += 1

    def leave(self) -> None:
        """Remove a user counted by ``enter``."""
        self._users -= 1
        if self._leaves and not self._users:
            self._unused.set()

    async def wind_down(self) -> None:
        """Wait until the runtime has no users, or for ``hasten``."""
        self._leaves = True
        if self.retire is not None:
            self.retire()
        if self._users:
            await self._unused.wait()

    def hasten(self) -> None:
        """End ``wind_down`` early, at the shutdown of the server."""
        self._unused.set()


class _Start(Protocol):
    def __call__(
        self,
        operation: Operation,
        body: bytes,
        on_result: OnResult,
        *,
        limit_s: float,
        progress: Progress | None = None,
    ) -> Stop: ...


class RouterHandle:
    """A session in a member: forwards the member's events, and counts the end."""

    __slots__ = ("_close", "_listener", "_member", "setup_ended", "start")

    def __init__(self, member: Member, listener: Listener) -> None:
        self._member: Member | None = member
        self._listener = listener
        self.setup_ended: Callable[[Faulted | Refused | None], None] = listener.setup_ended
        self.start: _Start
        member.sessions += 1
        member.enter()

    def opened(self, handle: Handle) -> None:
        """Direct calls to ``handle`` from now on."""
        self.start = handle.start
        self._close = handle.close

    def lost(self, fault: FaultClass, reason: str) -> None:
        """Note that the member lost the session."""
        self.over()
        self._listener.lost(fault, reason)

    def over(self) -> None:
        """Stop counting the session; safe to call twice."""
        member, self._member = self._member, None
        if member is not None:
            member.sessions -= 1
            member.leave()

    async def close(self) -> None:
        """See ``Handle.close``."""
        try:
            await self._close()
        finally:
            self.over()


@dataclass(frozen=True, slots=True)
class _View:
    """Snapshot of the members' environments, valid while they are equal to ``seen``."""

    seen: tuple[Sequence[EnvironmentInfo], ...]
    environments: tuple[EnvironmentInfo, ...]
    routes: Mapping[str, tuple[Member, str]]
    problems: tuple[str, ...]


_NOTHING = _View((), (), {}, ())


class RouterRuntime:
    """Runtime over ``members``, in order: the first environment of the first one is the default.

    Environments that become known later are added then, with a call of ``changed``. A duplicate name is an
    error at the start; later it is logged and ignored.
    """

    def __init__(self, members: Iterable[Member], *, changed: Callable[[], None] | None = None) -> None:
        self.members: tuple[Member, ...] = tuple(members)
        self.changed = changed
        self._view = _NOTHING
        self._started = False
        self._stopping = False
        self._leaving: dict[asyncio.Task[None], Member] = {}

    @property
    def environments(self) -> Sequence[EnvironmentInfo]:
        return self._current().environments

    @property
    def pending(self) -> Sequence[str]:
        if not self._started:
            return [member.label for member in self.members]
        return [label for member in self.members for label in member.runtime.pending]

    # life cycle

    async def start(self) -> None:
        """Start all members at the same time. Raises LoadError with the errors of those that failed."""
        try:
            await _start(self.members)
            self._adopt(self.members)
        except BaseException:
            await self.stop()
            raise
        self._started = True

    async def replace(self, members: Sequence[Member]) -> None:
        """Replace the members; those that stay are not affected.

        New ones are started first. Removed members take no new sessions, and are stopped after their last
        session. Raises LoadError if a new one fails to start or has a duplicate name; nothing is changed
        then.
        """
        fresh = [member for member in members if member not in self.members]
        try:
            await _start(fresh)
            if self._stopping:
                raise ShuttingDown("the server is shutting down")
            gone = [member for member in self.members if member not in members]
            self._adopt(members)
        except BaseException:
            await _stop(fresh)
            raise
        for member in gone:
            task = asyncio.get_running_loop().create_task(self._wind_down(member))
            self._leaving[task] = member
            task.add_done_callback(lambda ended: self._leaving.pop(ended, None))

    async def _wind_down(self, member: Member) -> None:
        if member.sessions:
            _log.info("environments_removing", runtime=member.label, sessions=member.sessions)
        await member.wind_down()
        await _stop([member])
        _log.info("environments_removed", runtime=member.label)

    async def stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        for member in self._leaving.values():
            member.hasten()
        await asyncio.gather(_stop(self.members), *self._leaving)

    # environments and metrics

    def _adopt(self, members: Sequence[Member]) -> None:
        view = _look(members)
        problems = [*view.problems, *filter(None, (member.missing() for member in members))]
        if problems:
            raise LoadError("\n".join(problems))
        self.members = tuple(members)
        self._show(view)

    def _current(self) -> _View:
        view = self._view
        if self._started:
            for member, seen in zip(self.members, view.seen, strict=True):
                if member.runtime.environments is not seen:
                    return self._look_again()
        return view

    def _look_again(self) -> _View:
        """Update the snapshot after a member's environments changed."""
        view = _look(self.members)
        problems = [*view.problems, *filter(None, (member.missing() for member in self.members))]
        if view.environments != self._view.environments:
            for problem in problems:
                _log.error("environment_skipped", reason=problem)
        self._show(view)
        return view

    def _show(self, view: _View) -> None:
        before, self._view = self._view, view
        if self.changed is not None and view.environments != before.environments:
            self.changed()

    def gauges(self) -> Iterator[Gauge]:
        """Metrics of all members under their labels, including removed ones that still run."""
        for member in (*self.members, *self._leaving.values()):
            labels = {"runtime": member.metric_label}
            yield Gauge("runtime_sessions", member.sessions, labels)
            if isinstance(member.runtime, Gauged):
                for gauge in member.runtime.gauges():
                    yield gauge._replace(labels={**gauge.labels, **labels})

    # sessions and tasks

    async def open(self, request: OpenSession, listener: Listener) -> RouterHandle:
        member, key = self._route(request.key)
        if member.max_sessions is not None and member.sessions >= member.max_sessions:
            raise Overloaded(
                f"environment {request.key!r} is at maximum capacity: {member.max_sessions} sessions"
            )
        if key != request.key:
            request = request.model_copy(update={"key": key})
        handle = RouterHandle(member, listener)
        try:
            handle.opened(await member.runtime.open(request, handle))
        except BaseException:
            handle.over()
            raise
        return handle

    async def tasks(self, query: TaskQuery) -> bytes:
        member, key = self._route(query.key)
        if key != query.key:
            query = query.model_copy(update={"key": key})
        member.enter()
        try:
            return await member.runtime.tasks(query)
        finally:
            member.leave()

    def member_of(self, key: str) -> Member:
        """The member that has the environment of that key. Raises UnknownEnvironment."""
        return self._route(key)[0]

    def _route(self, key: str) -> tuple[Member, str]:
        try:
            return self._current().routes[key]
        except KeyError:
            raise UnknownEnvironment(f"unknown environment {key!r}") from None


def hosts_nothing(runtime: Runtime) -> bool:
    """True for the runtime of a server that has no environments and waits for none."""
    return isinstance(runtime, RouterRuntime) and not runtime.members


def _look(members: Sequence[Member]) -> _View:
    environments: list[EnvironmentInfo] = []
    routes: dict[str, tuple[Member, str]] = {}
    problems: list[str] = []
    seen = tuple(member.runtime.environments for member in members)
    for position, member in enumerate(members):
        for there, info in member.offers():
            other, _ = routes.setdefault(info.key, (member, there))
            if routes[info.key] != (member, there):
                problems.append(
                    f"two environments are called {info.key!r}: one of {other.label}, one of {member.label};"
                    f' rename one in orsay.toml, there: serve = {{ {there} = "another name" }}'
                )
                continue
            leads = position == 0 and not environments
            environments.append(info if info.leads == leads else info.model_copy(update={"leads": leads}))
    return _View(seen, tuple(environments), routes, tuple(problems))


async def _start(members: Sequence[Member]) -> None:
    started = await asyncio.gather(*(member.runtime.start() for member in members), return_exceptions=True)
    problems: list[str] = []
    for member, error in zip(members, started, strict=True):
        if isinstance(error, LoadError | ConfigError):
            problems.append(f"{member.label}: {error}" if len(members) > 1 else str(error))
        elif error is not None:
            raise error
    if problems:
        raise LoadError("\n".join(problems))


async def _stop(members: Sequence[Member]) -> None:
    stopped = await asyncio.gather(*(member.runtime.stop() for member in members), return_exceptions=True)
    for member, error in zip(members, stopped, strict=True):
        if error is not None:
            _log.error("runtime_stop_failed", runtime=member.label, error=f"{type(error).__name__}: {error}")
