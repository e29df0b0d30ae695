"""Environment classes of OpenEnv, played in this process as OpenEnv's own server would play them.

Imports openenv, so it is itself imported only where such an environment is made or played.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, get_args, get_type_hints

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction, ListToolsObservation
from openenv.core.env_server.types import Action
from pydantic import ValidationError

from ..errors import Faulted, LoadError, Overloaded
from .openenv_offer import MCP_ACTIONS, ActionRefused, Offer, ToolOffer
from .openenv_results import Reply

__all__ = ["Capacity", "LocalPlay", "describe_class", "require_environment"]


class Capacity:
    """Limit of concurrent episodes of a class in this process: one, unless it supports more."""

    def __init__(self, cls: type, *, concurrent: bool | None) -> None:
        self._name = cls.__name__
        self._open = concurrent if concurrent is not None else bool(cls.SUPPORTS_CONCURRENT_SESSIONS)  # type: ignore[attr-defined]  # of OpenEnv's class
        self._taken = 0

    def enter(self) -> None:
        """Count an episode. Raises Overloaded over the limit."""
        if self._taken and not self._open:
            raise Overloaded(
                f"{self._name} does not support concurrent sessions (SUPPORTS_CONCURRENT_SESSIONS) "
                "and one is open in this process; serve it with ORSAY_SESSIONS_PER_WORKER=1, or with "
                "?concurrent=true"
            )
        self._taken += 1

    def leave(self) -> None:
        self._taken -= 1


class LocalPlay:
    """One instance. Sync methods run on one thread, which is this episode's alone; async ones on the loop."""

    def __init__(self, make: Callable[[], Any], capacity: Capacity) -> None:
        self._make = make
        self._capacity = capacity
        self._env: Any = None
        self._entered = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="openenv")
        self._lock = asyncio.Lock()

    async def reset(self, **settings: Any) -> Reply:
        async with self._lock:
            self._capacity.enter()
            self._entered = True
            self._env = await self._on_thread(self._make)
            return await self._run("reset", **_accepted(self._env, settings))

    async def step(self, action: dict[str, Any]) -> Reply:
        try:
            made = action_model(type(self._env)).model_validate(action)
        except ValidationError as exc:
            problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in exc.errors()]
            raise ActionRefused("; ".join(problems)) from exc
        async with self._lock:
            return await self._run("step", made)

    async def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        async with self._lock:
            return await self._run("step", CallToolAction(tool_name=name, arguments=arguments))

    async def close(self) -> None:
        try:
            if self._env is not None:
                await self._on_thread(self._env.close)
        finally:
            self._env = None
            if self._entered:
                self._entered = False
                self._capacity.leave()
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, name: str, *args: Any, **kwargs: Any) -> Reply:
        """The async method where the class has its own, else the sync one."""
        if self._env is None:
            raise Faulted("session_gone", "the environment is closed")
        later = getattr(type(self._env), f"{name}_async")
        if later is not getattr(Environment, f"{name}_async"):
            found = await getattr(self._env, f"{name}_async")(*args, **kwargs)
        else:
            found = await self._on_thread(partial(getattr(self._env, name), *args, **kwargs))
        return _reply(found)

    async def _on_thread(self, run: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)


def _reply(found: Any) -> Reply:
    fields = found.model_dump(mode="json", exclude={"reward", "done"}, fallback=str)
    return Reply.of(fields, found.reward, found.done, found.metadata)


def _accepted(env: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that ``reset`` takes, filtered as OpenEnv's server does."""
    parameters = inspect.signature(env.reset).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return settings
    return {key: value for key, value in settings.items() if key in parameters}


def require_environment(cls: Any, target: str) -> None:
    """Raise LoadError unless this is a concrete environment class of OpenEnv."""
    if not inspect.isclass(cls) or not issubclass(cls, Environment):
        raise LoadError(f"{target} is no environment of OpenEnv: derive it from openenv's Environment")
    if inspect.isabstract(cls):
        raise LoadError(
            f"{target} is abstract; implement {', '.join(sorted(getattr(cls, '__abstractmethods__', ())))}"
        )


def action_model(cls: type) -> Any:
    """Model of a class's actions, from its base ``Environment[...]`` or the annotation of ``step``."""
    for base in cls.__mro__:
        for generic in vars(base).get("__orig_bases__", ()):
            for kind in get_args(generic)[:1]:
                if inspect.isclass(kind) and issubclass(kind, Action):
                    return kind
    for method in ("_step_impl", "step_async", "step"):
        try:
            kind = get_type_hints(getattr(cls, method)).get("action")
        except (AttributeError, NameError, TypeError):
            continue
        if inspect.isclass(kind) and issubclass(kind, Action):
            return kind
    return Action


def describe_class(cls: type, make: Callable[[], Any]) -> Offer:
    """Offer of a class, read from one instance. Raises LoadError if the constructor fails."""
    try:
        env = make()
    except Exception as exc:
        raise LoadError(f"{cls.__name__} cannot be made: {type(exc).__name__}: {exc}") from exc
    try:
        tools: tuple[ToolOffer, ...] = ()
        if hasattr(env, "mcp_client") or hasattr(env, "mcp_server"):
            found = env.step(ListToolsAction())
            if isinstance(found, ListToolsObservation):
                tools = tuple(ToolOffer.of(each.model_dump()) for each in found.tools)
        about = env.get_metadata()
        model = action_model(cls)
        own = model.__name__ not in MCP_ACTIONS or not tools
        return Offer(
            name=str(about.name),
            description=str(about.description or ""),
            action=model.model_json_schema() if own else None,
            tools=tools,
            splits=(),
        )
    finally:
        env.close()
