"""Discovery endpoints, which need no session: environments, tools, splits and tasks."""

from __future__ import annotations

import platform
from importlib.metadata import version as package_version
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Response
from fastapi.routing import APIRoute
from orsay_protocol.requests import GetTask, GetTaskRange, ListTasks, NumTasks, Split
from orsay_protocol.tools import ListToolsOutput
from pydantic import BaseModel
from pydantic_core import to_json

from ..runtimes.base import EnvironmentInfo, Runtime, TaskQuery
from ..runtimes.router import hosts_nothing
from .choice import choose

__all__ = ["VERSION", "discovery_router"]

VERSION = package_version("orsay")


class Version(BaseModel):
    """Answer of ``/version``."""

    version: str
    build_sha: str | None
    server: str
    python: str


class Tasks(BaseModel):
    """Answer of ``/tasks`` and ``/task_range``."""

    tasks: list[dict[str, Any]]
    env_name: str


class Task(BaseModel):
    """Answer of ``/task``."""

    task: dict[str, Any]
    env_name: str


class NumTasksAnswer(BaseModel):
    """Answer of ``/num_tasks``."""

    num_tasks: int


Deployment = Annotated[str | None, Header()]
Env = Annotated[str, Path(description="an environment's name, in any letter case")]


def discovery_router(runtime: Runtime, *, index_only: bool, route: type[APIRoute]) -> APIRouter:
    """Routes under ``/{env}/…``, and the same without it for the first environment."""
    router = APIRouter(route_class=route)
    asking = _Discovery(runtime, index_only=index_only)
    router.add_api_route("/version", asking.version, response_model=Version, tags=["server"])
    router.add_api_route(
        "/list_environments", asking.list_environments, response_model=list[str], tags=["environments"]
    )
    router.add_api_route(
        "/environments", asking.environments, response_model=list[EnvironmentInfo], tags=["environments"]
    )
    for path, endpoint, answer, method in (
        ("tools", asking.tools, ListToolsOutput, "GET"),
        ("splits", asking.splits, list[Split], "GET"),
        ("tasks", asking.tasks, Tasks, "POST"),
        ("num_tasks", asking.num_tasks, NumTasksAnswer, "POST"),
        ("task", asking.task, Task, "POST"),
        ("task_range", asking.task_range, Tasks, "POST"),
    ):
        router.add_api_route(
            f"/{{env}}/{path}", endpoint, methods=[method], response_model=answer, tags=["environments"]
        )
        router.add_api_route(f"/{path}", _bare(endpoint), methods=[method], include_in_schema=False)
    return router


def _bare(endpoint: Any) -> Any:
    """The endpoint for the first environment, answered directly instead of by a redirect."""
    name = endpoint.__name__

    if name in ("tools", "splits"):

        async def without_body(x_deployment: Deployment = None) -> Response:
            answer: Response = await endpoint("", x_deployment=x_deployment)
            return answer

        return without_body

    async def with_body(body: Any, x_deployment: Deployment = None) -> Response:
        answer: Response = await endpoint("", body, x_deployment=x_deployment)
        return answer

    with_body.__annotations__["body"] = endpoint.__annotations__["body"]
    return with_body


class _Discovery:
    def __init__(self, runtime: Runtime, *, index_only: bool) -> None:
        self._runtime = runtime
        self._index_only = index_only

    def _info(self, env: str, deployment: str | None = None) -> EnvironmentInfo:
        return choose(self._runtime, env, deployment)

    def _wait_for_some(self) -> None:
        """Raise Starting until there are environments, on a server that hosts some."""
        if not self._runtime.environments and not hosts_nothing(self._runtime):
            self._info("")

    async def version(self) -> Response:
        """Version of this server."""
        answer = Version(version=VERSION, build_sha=None, server="orsay", python=platform.python_version())
        return _json(answer.model_dump_json().encode())

    async def list_environments(self) -> Response:
        """Names in lower case; the first is the default. Those of runtimes that are not up yet come later."""
        self._wait_for_some()
        return _json(to_json([info.key for info in self._runtime.environments]))

    async def environments(self) -> Response:
        """Complete description of each environment, for a server in front of this one."""
        self._wait_for_some()
        return _json(to_json(list(self._runtime.environments)))

    async def tools(self, env: Env, x_deployment: Deployment = None) -> Response:
        """Tools that every session of the environment has."""
        return _json(self._info(env, x_deployment).listing.model_dump_json().encode())

    async def splits(self, env: Env, x_deployment: Deployment = None) -> Response:
        """Names and types of the splits."""
        return _json(to_json(self._info(env, x_deployment).splits))

    async def tasks(self, env: Env, body: ListTasks, x_deployment: Deployment = None) -> Response:
        """All tasks of a split; 400 for an environment that cannot list them."""
        info = self._info(env, x_deployment)
        if self._index_only:
            return _tasks(info, env, self._references(body.split, 0, await self._count(info, body.split)))
        query = TaskQuery(key=info.key, split=body.split, ask="list")
        return _tasks(info, env, await self._runtime.tasks(query))

    async def num_tasks(self, env: Env, body: NumTasks, x_deployment: Deployment = None) -> Response:
        """Count the tasks of a split."""
        return _json(b'{"num_tasks":%d}' % await self._count(self._info(env, x_deployment), body.split))

    async def task(self, env: Env, body: GetTask, x_deployment: Deployment = None) -> Response:
        """One task; a negative index counts from the end."""
        info = self._info(env, x_deployment)
        task = await self._runtime.tasks(
            TaskQuery(key=info.key, split=body.split, ask="one", index=body.index)
        )
        if self._index_only:
            task = to_json({"split": body.split, "index": body.index})
        return _json(b'{"task":' + task + b',"env_name":' + to_json(env or info.key) + b"}")

    async def task_range(self, env: Env, body: GetTaskRange, x_deployment: Deployment = None) -> Response:
        """Tasks ``start`` up to ``stop``, as a Python slice."""
        info = self._info(env, x_deployment)
        if self._index_only:
            span = range(*slice(body.start, body.stop).indices(await self._count(info, body.split)))
            return _tasks(info, env, self._references(body.split, span.start, span.stop))
        query = TaskQuery(key=info.key, split=body.split, ask="range", start=body.start, stop=body.stop)
        return _tasks(info, env, await self._runtime.tasks(query))

    async def _count(self, info: EnvironmentInfo, split: str) -> int:
        return int(await self._runtime.tasks(TaskQuery(key=info.key, split=split, ask="count")))

    def _references(self, split: str, start: int, stop: int) -> bytes:
        """Task sources for ``/create`` in place of tasks: with index_only no task leaves the server (S6)."""
        return to_json([{"split": split, "index": index} for index in range(start, stop)])


def _tasks(info: EnvironmentInfo, env: str, tasks: bytes) -> Response:
    return _json(b'{"tasks":' + tasks + b',"env_name":' + to_json(env or info.key) + b"}")


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
