"""Sources of sessions: an ORS server by URL; ``catalog`` has the OpenReward catalog."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orsay_client import AsyncClient, Retry, errors
from orsay_protocol import (
    GroupCandidate,
    GroupScore,
    ImageBlock,
    JSONObject,
    ListToolsOutput,
    TextBlock,
    ToolOutput,
)

__all__ = ["PlayedSession", "ServerSource", "Source", "TaskRef"]

_FETCHES = 32  # requests for single tasks under way at a time
_RANGE = 256


@dataclass(frozen=True, slots=True)
class TaskRef:
    """A task: by split and index, or by its ``spec``, which has priority."""

    split: str
    index: int
    spec: JSONObject | None = None


class PlayedSession(Protocol):
    """One session; raises the errors of ``orsay_client.errors``."""

    @property
    def sid(self) -> str: ...
    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def prompt(self) -> list[TextBlock | ImageBlock]: ...
    async def listing(self) -> ListToolsOutput: ...
    async def call(
        self, name: str, input: JSONObject | None = None, *, timeout_s: float | None = None
    ) -> ToolOutput: ...
    async def score_group(self, candidates: Sequence[GroupCandidate]) -> list[GroupScore]: ...


class Source(Protocol):
    """One environment; raises the errors of ``orsay_client.errors``."""

    async def count(self, split: str) -> int: ...
    async def specs(self, split: str, indices: Sequence[int]) -> list[Mapping[str, Any]]: ...
    async def listing(self) -> ListToolsOutput: ...
    def session(self, task: TaskRef, labels: Mapping[str, str | int]) -> PlayedSession: ...
    async def aclose(self) -> None: ...


class ServerSource:
    """Source for an environment of any ORS server. Create it on the event loop; reads no variables."""

    def __init__(
        self,
        url: str,
        *,
        env_name: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        secrets: Mapping[str, str] | None = None,
        tries: int = 6,
    ) -> None:
        self._client = AsyncClient(
            url,
            api_key=api_key,
            headers=headers,
            verify=True if ca_file is None else ssl.create_default_context(cafile=ca_file),
            retry=Retry(tries=tries),
        )
        self._environment = self._client.environment(env_name)
        self._secrets = dict(secrets or {})

    async def count(self, split: str) -> int:
        return await self._environment.tasks(split).count()

    async def specs(self, split: str, indices: Sequence[int]) -> list[Mapping[str, Any]]:
        """The tasks' specs, fetched in ranges for consecutive indices."""
        tasks = self._environment.tasks(split)
        limit = asyncio.Semaphore(_FETCHES)

        async def fetch(run: range) -> list[Mapping[str, Any]]:
            async with limit:
                if len(run) == 1:
                    return [(await tasks.get(run.start)).spec]
                found = await tasks.range(run.start, run.stop)
            if len(found) != len(run):
                raise errors.BadRequest(
                    f"split {split!r} has no tasks {run.start + len(found)} to {run.stop - 1}"
                )
            return [task.spec for task in found]

        pages = await asyncio.gather(*(fetch(run) for run in _runs(indices)))
        return [spec for page in pages for spec in page]

    async def listing(self) -> ListToolsOutput:
        return await self._environment.listing()

    def session(self, task: TaskRef, labels: Mapping[str, str | int]) -> PlayedSession:
        where: dict[str, Any] = {"split": task.split, "index": task.index}
        if task.spec is not None:
            where = {"task_spec": task.spec}
        return self._environment.session(**where, secrets=self._secrets or None, run_labels=labels or None)

    async def aclose(self) -> None:
        await self._client.aclose()


def _runs(indices: Sequence[int]) -> list[range]:
    """Ranges of consecutive indices, 256 at most each."""
    runs: list[range] = []
    for index in indices:
        if runs and index == runs[-1].stop and index > 0 and len(runs[-1]) < _RANGE:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return runs
