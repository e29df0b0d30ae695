"""An environment on a server: its splits, tasks and tools, and new sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

from orsay_protocol import JSONObject, ListToolsOutput, Split, TerminalToolSpec, ToolSpec
from orsay_protocol.headers import RUN
from orsay_protocol.trace import TRACEPARENT

from . import parse
from .connection import Connection
from .formats import Format, format_tools
from .labels import RunLabels, run_header
from .opening import Opening, env_path
from .sessions import AsyncSession
from .tasks import AsyncTasks, Task
from .traces import current_traceparent

__all__ = ["AsyncEnvironment", "opening"]


class AsyncEnvironment:
    """One environment, or the server's default one if ``name`` is None. The constructor sends nothing."""

    def __init__(self, connection: Connection, name: str | None) -> None:
        self._connection = connection
        self.name = name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or '(default)'} at {self._connection.transport.address}>"

    async def splits(self) -> list[Split]:
        return parse.splits((await self._connection.request("GET", env_path(self.name, "/splits"))).json())

    def tasks(self, split: str) -> AsyncTasks:
        """The tasks of a split; sends nothing yet."""
        return AsyncTasks(self._connection, self.name, split)

    async def listing(self) -> ListToolsOutput:
        """The server's complete listing of the environment's tools."""
        return parse.listing((await self._connection.request("GET", env_path(self.name, "/tools"))).json())

    @overload
    async def tools(self, format: None = None) -> list[ToolSpec]: ...
    @overload
    async def tools(self, format: Format) -> list[dict[str, Any]]: ...

    async def tools(self, format: Format | None = None) -> list[ToolSpec] | list[dict[str, Any]]:
        """The tools of every task; a session may have more."""
        found = (await self.listing()).tools
        return found if format is None else format_tools(found, format)

    async def terminal_tool(self) -> TerminalToolSpec | None:
        return (await self.listing()).terminal_tool

    async def supports_score_group(self) -> bool:
        return bool((await self.listing()).supports_score_group)

    def session(
        self,
        task: Task | None = None,
        *,
        split: str | None = None,
        index: int | None = None,
        task_spec: JSONObject | None = None,
        secrets: Mapping[str, str] | None = None,
        secrets_in_body: bool = False,
        toolset: str | None = None,
        run_labels: RunLabels | None = None,
        traceparent: str | None = None,
    ) -> AsyncSession:
        """A session for exactly one of: ``task``, ``split`` with ``index``, ``task_spec``.

        ``secrets_in_body`` is for servers of ors-sdk, which read secrets nowhere else; others refuse it.
        ``run_labels`` (the name of the run, or a flat mapping, of which servers of ours know ``run``,
        ``step`` and ``rollout``) and ``traceparent`` (W3C) go with every request of the session, for logs,
        traces and the journal. Without ``traceparent`` the session belongs to the trace of the OpenTelemetry
        span that is active where this is called, and to a new one where there is none.
        """
        return AsyncSession(
            self._connection,
            opening(
                self.name,
                task,
                split=split,
                index=index,
                task_spec=task_spec,
                secrets=secrets,
                secrets_in_body=secrets_in_body,
                toolset=toolset,
                run_labels=run_labels,
                traceparent=traceparent,
            ),
        )


def opening(
    env_name: str | None,
    task: Task | None,
    *,
    split: str | None,
    index: int | None,
    task_spec: JSONObject | None,
    secrets: Mapping[str, str] | None,
    secrets_in_body: bool,
    toolset: str | None,
    run_labels: RunLabels | None,
    traceparent: str | None,
) -> Opening:
    """Validate the arguments of a session. Raises ValueError without sending anything."""
    if (split is None) != (index is None):
        raise ValueError("split and index belong together: give both or neither")
    if sum(source is not None for source in (task, split, task_spec)) != 1:
        raise ValueError("give exactly one of: task, split with index, task_spec")
    body: dict[str, Any] = {}
    if split is not None:
        body |= {"split": split, "index": index}
    else:
        body["task_spec"] = dict((task_spec if task is None else task.spec) or {})
    if toolset is not None:
        body["toolset_name"] = toolset
    headers = {}
    if run_labels:
        headers[RUN] = run_header(run_labels)
    if traceparent is None:
        traceparent = current_traceparent()
    elif not traceparent.isascii() or not traceparent.isprintable():
        raise ValueError("traceparent must be printable ASCII, as 00-<trace>-<span>-01")
    headers[TRACEPARENT] = traceparent
    return Opening(
        env_name=env_name,
        body=body,
        secrets=dict(secrets or {}),
        secrets_in_body=secrets_in_body,
        headers=headers,
    )
