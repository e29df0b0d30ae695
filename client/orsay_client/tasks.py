"""Tasks of a split, fetched one by one or in pages, so that large and endless splits can be used."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from .connection import Connection
from .errors import ProtocolError
from .opening import env_path

__all__ = ["AsyncTasks", "Task"]

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Task:
    """One task: its ``spec``, with split and index if known."""

    spec: dict[str, Any]
    split: str | None = None
    index: int | None = None
    env_name: str | None = None


class AsyncTasks:
    """The tasks of one split. Iterate with ``async for``: pages are fetched as they are needed."""

    def __init__(self, connection: Connection, env_name: str | None, split: str) -> None:
        self._connection = connection
        self._env_name = env_name
        self.split = split

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of split {self.split!r}>"

    async def count(self) -> int:
        """Number of tasks in the split."""
        answer = await self._post("/num_tasks")
        if answer is None:
            return len(await self._all())
        count = answer.get("num_tasks")
        if not isinstance(count, int):
            raise ProtocolError("POST /num_tasks: the answer holds no number")
        return count

    async def get(self, index: int) -> Task:
        """One task; a negative index counts from the end where the environment allows it."""
        answer = await self._post("/task", index=index)
        if answer is None:
            return (await self._all())[index]
        return self._task(answer.get("task"), index, answer.get("env_name"))

    async def range(self, start: int | None = None, stop: int | None = None) -> list[Task]:
        """The tasks of a half-open range, as a slice of Python takes them."""
        answer = await self._post("/task_range", start=start, stop=stop)
        if answer is None:
            return (await self._all())[start:stop]
        first = start or 0
        if start is not None and start < 0:
            first = max(0, await self.count() + start)
        return self._tasks(answer, first)

    async def __aiter__(self) -> AsyncIterator[Task]:
        async for page in self.pages():
            for task in page:
                yield task

    async def pages(self) -> AsyncGenerator[list[Task], None]:
        """All tasks, in pages of some hundred; as one page from a server without ranges."""
        start = 0
        while True:
            answer = await self._post("/task_range", start=start, stop=start + _PAGE)
            page = await self._all() if answer is None else self._tasks(answer, start)
            if page:
                yield page
            start += len(page)
            if answer is None or len(page) < _PAGE:
                return

    async def _all(self) -> list[Task]:
        path = env_path(self._env_name, "/tasks")
        answer = await self._connection.request("POST", path, body={"split": self.split})
        return self._tasks(_object(answer.json(), path), 0)

    async def _post(self, path: str, **fields: int | None) -> dict[str, Any] | None:
        path = env_path(self._env_name, path)
        answer = await self._connection.request_if_offered("POST", path, body={"split": self.split, **fields})
        return None if answer is None else _object(answer.json(), path)

    def _tasks(self, answer: dict[str, Any], first: int) -> list[Task]:
        specs = answer.get("tasks")
        if not isinstance(specs, list):
            raise ProtocolError("the server's list of tasks is none")
        name = answer.get("env_name")
        return [self._task(spec, first + offset, name) for offset, spec in enumerate(specs)]

    def _task(self, spec: Any, index: int, env_name: Any) -> Task:
        if not isinstance(spec, dict):
            raise ProtocolError("the server sent a task that is no JSON object")
        name = env_name if isinstance(env_name, str) else self._env_name
        return Task(spec=spec, split=self.split, index=index, env_name=name)


def _object(raw: Any, path: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ProtocolError(f"POST {path}: expected a JSON object, got {type(raw).__name__}")
    return raw
