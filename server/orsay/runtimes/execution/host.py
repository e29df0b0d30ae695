"""Host of the environments of one process: opens episodes, answers queries about tasks.

Used in the server by the ``local`` runtime, and in worker processes.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from orsay_protocol.redact import redactor
from pydantic_core import to_json

from ...authoring.hosted import HostedEnvironment, host
from ...authoring.sandbox.opening import SandboxesOfSession
from ...errors import Faulted, LoadError, UnknownEnvironment
from ...tracing import Origin, within
from ..base import EnvironmentInfo, OnResult, OpenSession, TaskQuery
from .episode import Episode, ExecutionContext, Limits
from .guard import guard_author, run_author
from .runs import Run, Runs, run_now
from .threads import Threads

__all__ = ["EnvironmentHost", "describe"]


def describe(hosted: HostedEnvironment) -> EnvironmentInfo:
    """Description of a hosted class for the server."""
    rows = hosted.tools.values()
    return EnvironmentInfo(
        name=hosted.name,
        key=hosted.key,
        description=hosted.description,
        listing=hosted.listing,
        splits=hosted.splits,
        supports_score_group=hosted.supports_score_group,
        call_time_limit_s=hosted.call_time_limit_s,
        setup_time_limit_s=hosted.setup_time_limit_s,
        tool_time_limits_s={row.name: row.time_limit_s for row in rows if row.time_limit_s is not None},
        detached_tools=frozenset(row.name for row in rows if row.detached),
        replayable=hosted.replayable,
        uses_sandboxes=hosted.uses_sandboxes,
        repeatable_commands=hosted.repeatable_commands,
        serial_tools=tuple(row.name for row in rows if not (row.concurrent or row.exclusive)),
        exclusive_tools=tuple(row.name for row in rows if row.exclusive),
        fixed_tools=hosted.plain_task_tools,
        in_order=True,
    )


class EnvironmentHost:
    """The environments of one process, for one running event loop. Raises LoadError."""

    def __init__(self, classes: Iterable[type], limits: Limits, *, threads: int) -> None:
        self._hosted: dict[str, HostedEnvironment] = {}
        for environment in (host(cls, run=self._run) for cls in classes):
            other = self._hosted.setdefault(environment.key, environment)
            if other is not environment:
                raise LoadError(
                    f"two environments are called {environment.key!r}: {_where(other)} and"
                    f" {_where(environment)}; give one of them another name()"
                )
        self.context = ExecutionContext(Threads(threads), Runs(slow_after_s=limits.slow_after_s), limits)

    @property
    def environments(self) -> tuple[EnvironmentInfo, ...]:
        return tuple(describe(environment) for environment in self._hosted.values())

    def start_open(self, request: OpenSession, on_result: OnResult) -> Run | None:
        """Resolve the task and construct the environment; ``on_result`` gets the Episode, Faulted or Refused.

        An instance whose construction is stopped too late is torn down. Returns None if it ended at once, as
        when neither step runs author code.
        """
        hosted = self._environment(request.key)
        origin = _origin(request)

        async def body(_: Run | None = None) -> Episode:
            spec = request.task_spec
            if spec is None:
                spec = await self._task(hosted, request.split or "", request.index or 0)
            return await Episode.open(
                hosted,
                self.context,
                origin,
                task_spec=spec,
                secrets=request.secrets,
                toolset_name=request.toolset_name,
            )

        limit = hosted.setup_time_limit_s or self.context.limits.setup_time_limit_s
        with within(origin):
            if (
                hosted.plain_constructor
                and request.toolset_name is None
                and (request.task_spec is not None or hosted.tasks.is_listed(request.split or ""))
            ):
                run_now(body(), on_result)
                return None
            return self.context.runs.start(
                body, on_result, limit_s=limit, what=f"the constructor of {hosted.name!r}"
            )

    async def tasks(self, query: TaskQuery) -> bytes:
        """JSON answer. Raises Faulted (task_error, time_limit) or Refused."""
        hosted = self._environment(query.key)

        source = hosted.tasks

        async def ask() -> Any:
            match query.ask:
                case "list":
                    return await source.list_tasks(query.split)
                case "count":
                    return await source.num_tasks(query.split)
                case "one":
                    return await source.get_task(query.split, query.index or 0)
                case "range":
                    return await source.get_task_range(query.split, query.start, query.stop)

        async def body(_: Run) -> Any:
            return await self._guarded(hosted, ask())

        limit = hosted.setup_time_limit_s or self.context.limits.setup_time_limit_s
        value = await self.context.runs.run(body, limit_s=limit, what=f"the tasks of {hosted.name!r}")
        try:
            return to_json(value)
        except Exception as exc:
            raise Faulted("task_error", f"a task of {hosted.name!r} is no JSON: {exc}") from exc

    async def _task(self, hosted: HostedEnvironment, split: str, index: int) -> dict[str, Any]:
        spec = await self._guarded(hosted, hosted.tasks.get_task(split, index))
        # a copy through JSON: an episode may modify its task, and must see the types that a client sends
        copy: dict[str, Any] = json.loads(to_json(spec))
        return copy

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        return await run_author(self.context.threads, function, *args)

    async def _guarded(self, hosted: HostedEnvironment, asking: Awaitable[Any]) -> Any:
        return await guard_author("task_error", f"the tasks of {hosted.name!r}", asking)

    def _environment(self, key: str) -> HostedEnvironment:
        try:
            return self._hosted[key]
        except KeyError:
            raise UnknownEnvironment(f"unknown environment {key!r}") from None

    def close(self) -> None:
        self.context.runs.close()
        self.context.threads.close()


def _where(hosted: HostedEnvironment) -> str:
    return f"{hosted.cls.__module__}:{hosted.cls.__qualname__}"


def _origin(request: OpenSession) -> Origin:
    key = request.sandbox_key
    hide = redactor([*request.secrets.values(), key] if key else request.secrets.values())
    return Origin(request.trace or "", hide, SandboxesOfSession(key) if key else None)
