"""Source of environments of the OpenReward catalog, through the ``openreward`` package."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from types import TracebackType
from typing import Any

import aiohttp
from openreward import AsyncOpenReward
from openreward.api import errors as theirs
from orsay_client import errors
from orsay_client.redact import Redact
from orsay_client.sessions import call_body
from orsay_client.transport import encode_json
from orsay_protocol import (
    GroupCandidate,
    GroupScore,
    ImageBlock,
    JSONObject,
    ListToolsOutput,
    TerminalToolSpec,
    TextBlock,
    ToolOutput,
    ToolSpec,
)
from pydantic import TypeAdapter

from .source import PlayedSession, TaskRef

__all__ = ["CatalogSource"]

_BLOCKS: TypeAdapter[list[TextBlock | ImageBlock]] = TypeAdapter(list[TextBlock | ImageBlock])
_AT_A_TIME = 16
_NO_INPUT = (None, 400, 413, 422)  # never sent, or refused on arrival


class CatalogSource:
    """An environment ``owner/name``. The key is ``api_key`` or OPENREWARD_API_KEY.

    As TRL does, it hands the key to the environment as the secret ``api_key`` when no secrets are given.
    """

    def __init__(
        self,
        name: str,
        *,
        env_name: str | None = None,
        api_key: str | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        key = api_key or os.environ.get("OPENREWARD_API_KEY")
        if not key:
            raise errors.Unauthorized(
                f"{name} is in the OpenReward catalog, which needs a key: "
                "give api_key, or set OPENREWARD_API_KEY"
            )
        self._client = AsyncOpenReward(api_key=key)
        self._environment = self._client.environments.get(name, variant=env_name)
        self._secrets = dict(secrets) if secrets is not None else {"api_key": key}
        self._boundary = _Boundary(Redact([key, *self._secrets.values()]))

    async def count(self, split: str) -> int:
        async with self._boundary:
            return int(await self._environment.num_tasks(split))

    async def specs(self, split: str, indices: Sequence[int]) -> list[Mapping[str, Any]]:
        limit = asyncio.Semaphore(_AT_A_TIME)

        async def fetch(index: int) -> Mapping[str, Any]:
            async with limit, self._boundary:
                found: Mapping[str, Any] = (await self._environment.get_task(split, index)).task_spec
                return found

        return await asyncio.gather(*(fetch(index) for index in indices))

    async def listing(self) -> ListToolsOutput:
        async with self._boundary:
            tools = await self._environment.list_tools()
            terminal = await self._environment.terminal_tool()
            groups = await self._environment.supports_score_group()
            return _listing(tools, terminal, groups)

    def session(self, task: TaskRef, labels: Mapping[str, str | int]) -> PlayedSession:
        """Open a session. ``labels`` are not sent: the catalog accepts none."""
        return _CatalogSession(self._environment, task, self._secrets, self._boundary)

    async def aclose(self) -> None:
        await self._client.environments.aclose()


class _CatalogSession:
    def __init__(
        self, environment: Any, task: TaskRef, secrets: Mapping[str, str], boundary: _Boundary
    ) -> None:
        self._boundary = boundary
        where: dict[str, Any] = {"split": task.split, "index": task.index}
        if task.spec is not None:
            from openreward.api.environments.client import Task

            where = {
                "task": Task(
                    server_name=environment.server,
                    environment_name=environment.name,
                    task_spec=dict(task.spec),
                    namespace=environment.namespace,
                )
            }
        self._session = environment.session(**where, secrets=dict(secrets) or None)

    @property
    def sid(self) -> str:
        return str(self._session.sid or "")

    async def open(self) -> None:
        async with self._boundary:
            await self._session.__aenter__()

    async def close(self) -> None:
        async with self._boundary:
            await self._session.__aexit__(None, None, None)

    async def prompt(self) -> list[TextBlock | ImageBlock]:
        async with self._boundary:
            return _blocks(await self._session.get_prompt())

    async def listing(self) -> ListToolsOutput:
        async with self._boundary:
            tools = await self._session.list_tools()
            return _listing(
                tools, await self._session.terminal_tool(), await self._session.supports_score_group()
            )

    async def call(
        self, name: str, input: JSONObject | None = None, *, timeout_s: float | None = None
    ) -> ToolOutput:
        body = call_body(name, input)
        try:
            encode_json(body)
            async with self._boundary, asyncio.timeout(timeout_s):
                output = await self._session.call_tool(name, body["input"])
        except errors.BadRequest as exc:
            if exc.status not in _NO_INPUT:
                raise
            raise errors.ToolRefused(exc.message, reason="input_validation") from exc
        return ToolOutput(
            blocks=_blocks(output.blocks),
            metadata=output.metadata,
            reward=output.reward,
            finished=bool(output.finished),
        )

    async def score_group(self, candidates: Sequence[GroupCandidate]) -> list[GroupScore]:
        from openreward.api.environments import types

        group = [
            types.GroupCandidate(
                messages=[
                    types.Message(role=m.role, blocks=[types.TextBlock(text=_plain(m.blocks))])
                    for m in candidate.messages
                ],
                metadata=dict(candidate.metadata or {}),
            )
            for candidate in candidates
        ]
        async with self._boundary:
            scores = await self._session.score_group(group)
            return [GroupScore(reward=score.reward, metadata=score.metadata) for score in scores]


class _Boundary:
    """Context in which the package's errors are raised as those of ``orsay_client.errors``.

    A class, and no generator: its ``__aexit__`` returns None, so it visibly swallows nothing.
    """

    def __init__(self, redact: Redact) -> None:
        self._redact = redact

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is not None and (ours := _translate(exc, self._redact(str(exc)))) is not None:
            raise ours from exc


def _translate(exc: BaseException, message: str) -> errors.OrsayClientError | None:
    """A refusal, a fault or a request error; None for other exceptions of the package."""
    match exc:
        case theirs.ToolCallError():
            return errors.ToolRefused(message, reason=str(getattr(exc, "reason", "not_found")))
        case theirs.ToolFailed():
            return errors.ToolError(message)
        case theirs.ScoreGroupUnsupported():
            return errors.Unsupported(message)
        case theirs.ScoreGroupFailed():
            return errors.ScoreError(message)
        case theirs.SessionTerminatedError():
            return errors.SessionLost(message)
        case aiohttp.ClientResponseError():
            return _by_status(exc.status, message)
        case theirs.OpenRewardError():
            return _by_status(getattr(exc, "status", None), message)
        case aiohttp.ClientError() | ConnectionError():
            return errors.ConnectionLost(message)
    return None


def _by_status(status: int | None, message: str) -> errors.OrsayClientError:
    if status in (401, 403):
        return errors.Unauthorized(message, status=status)
    if status in (400, 404, 405, 409, 413, 422):
        return errors.BadRequest(message, status=status)
    return errors.ConnectionLost(message)


def _blocks(blocks: Sequence[Any]) -> list[TextBlock | ImageBlock]:
    return _BLOCKS.validate_python([_fields(block) for block in blocks])


def _fields(block: Any) -> Any:
    return asdict(block) if is_dataclass(block) and not isinstance(block, type) else block


def _plain(blocks: Sequence[Any]) -> str:
    """Blocks as text: the catalog's servers may know no other kind in a candidate."""
    found = []
    for block in blocks:
        if block.type == "tool_call":
            found.append(f"{block.name}({dict(block.input)})")
        elif block.type == "tool_result":
            found.append(_plain(block.blocks))
        elif block.type in ("text", "reasoning"):
            found.append(block.text)
    return "\n".join(found)


def _listing(tools: Sequence[Any], terminal: Any, groups: bool) -> ListToolsOutput:
    return ListToolsOutput(
        tools=[
            ToolSpec(name=t.name, description=t.description or "", input_schema=t.input_schema) for t in tools
        ],
        terminal_tool=TerminalToolSpec(
            name=terminal.name, arg=terminal.arg, description=terminal.description or ""
        )
        if terminal is not None
        else None,
        supports_score_group=groups,
    )
