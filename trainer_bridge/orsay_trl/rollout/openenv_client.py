"""Adapter of OpenEnv clients of any release, sync or async, for rollouts."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ..play.episode import LARGEST_REWARD

__all__ = ["ClientMaker", "OpenEnvGame"]

_log = logging.getLogger("orsay_trl")
_ATTEMPTS = 3
_BACKOFF_S = 0.5


@dataclass(frozen=True, slots=True)
class ClientMaker:
    """Factory of clients; ``create_openenv_vllm_rollout_func`` documents the fields."""

    env_factory: Callable[[], Any] | None = None
    env_client_cls: type[Any] | None = None
    tasks: Sequence[str] | None = None
    task_var: str | None = None
    docker_image: str = "browsergym-env:latest"
    env_base_url: str | None = None
    request_timeout_s: float = 15.0
    default_headers: Mapping[str, str] | None = None
    provider: Any = None
    docker_port: int | None = None
    env_vars: Mapping[str, str] | None = None
    browser: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.env_factory is None and self.env_client_cls is None:
            raise ValueError("give env_factory, or env_client_cls with env_base_url or docker_image")
        if self.tasks and not self.task_var:
            raise ValueError("tasks need task_var: the variable in which the environment finds its task")

    def task(self, group: int, batch: int) -> str | None:
        """The task of a group of rollouts: the next one for each group, with a new start for each batch."""
        return self.tasks[(group + batch) % len(self.tasks)] if self.tasks else None

    async def client(self, task: str | None) -> Any:
        """A new client. Its exceptions pass through."""
        if self.env_factory is not None:
            return await done(self.env_factory)
        assert self.env_client_cls is not None
        if self.env_base_url:
            accepted = inspect.signature(self.env_client_cls.__init__).parameters
            wanted = {
                "base_url": self.env_base_url,
                "request_timeout_s": self.request_timeout_s,
                "message_timeout_s": self.request_timeout_s,
                "default_headers": dict(self.default_headers) if self.default_headers else None,
            }
            return self.env_client_cls(**{key: value for key, value in wanted.items() if key in accepted})
        variables = {key: str(value) for key, value in self._variables(task).items() if value is not None}
        options: dict[str, Any] = {"env_vars": variables} if variables else {}
        if self.docker_port is not None:
            options["port"] = self.docker_port
        return await done(
            self.env_client_cls.from_docker_image, self.docker_image, provider=self.provider, **options
        )

    def _variables(self, task: str | None) -> dict[str, Any]:
        browser = dict(self.browser or {}) if "browsergym" in self.docker_image else {}
        chosen = {self.task_var: task} if self.task_var and task is not None else {}
        return {**browser, **(self.env_vars or {}), **chosen}


class OpenEnvGame:
    """One episode on its own client, as a ``Game``. Failures become faults and are never raised."""

    def __init__(self) -> None:
        self.finished = False
        self.fault: str | None = None
        self.fault_message = ""
        self.observation: Any = None
        self.rewards: list[float] = []
        self._client: Any = None

    async def open(self, clients: ClientMaker, task: str | None) -> None:
        """Make a client and reset the environment, three times at most, each time on a new client."""
        for attempt in range(_ATTEMPTS):
            try:
                self._client = await clients.client(task)
                result = await done(self._client.reset)
            except Exception as exc:  # author code of any kind, behind a client of any kind
                await self.close()
                self._failed(exc)
                if attempt + 1 < _ATTEMPTS:
                    await asyncio.sleep(_BACKOFF_S * 2**attempt)
            else:
                self.fault, self.fault_message = None, ""
                self.observation, self.finished = result.observation, bool(result.done)
                return

    def check(self, action: Any) -> None:
        """Raises ValueError for an action that cannot be encoded as JSON; other kinds are not checked."""
        try:
            fields = action.model_dump() if isinstance(action, BaseModel) else action
            json.dumps(fields, ensure_ascii=False, default=str).encode()
        except (ValueError, RecursionError) as exc:
            raise ValueError(f"this action cannot be sent: {exc}") from exc

    async def step(self, action: Any) -> float | None:
        """Take one step with ``action``; a step that may have run is not repeated."""
        try:
            result = await done(self._client.step, action)
            reward = float(result.reward or 0.0)
        except Exception as exc:
            self._failed(exc)
            return None
        self.observation, self.finished = result.observation, bool(result.done)
        if not self.accepts(reward, "a step"):
            return None
        self.rewards.append(reward)
        return reward

    def accepts(self, reward: float, of: str) -> bool:
        """True for a usable reward; otherwise the episode is lost to ``bad_reward``."""
        if abs(reward) <= LARGEST_REWARD:  # False for NaN
            return True
        self.fault = "bad_reward"
        limits = f"{-LARGEST_REWARD:g} to {LARGEST_REWARD:g}"
        self.fault_message = f"the reward of {of} is {reward:g}, no number from {limits}"
        _log.warning("an OpenEnv rollout is lost: %s", self.fault_message)
        return False

    async def close(self) -> None:
        """Close the client; safe to call twice, never raises."""
        client, self._client = self._client, None
        if client is None:
            return
        try:
            await done(client.close)
        except Exception as exc:
            _log.debug("an OpenEnv client did not close: %s", exc)

    def _failed(self, exc: Exception) -> None:
        self.fault, self.fault_message = _fault_class(exc), str(exc) or type(exc).__name__
        _log.warning("an OpenEnv environment failed (%s): %s", self.fault, self.fault_message)


async def done(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a sync or async function; sync ones run on a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    result = await asyncio.to_thread(function, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def _fault_class(exc: Exception) -> str:
    if isinstance(exc, TimeoutError):
        return "time_limit"
    if isinstance(exc, OSError) or type(exc).__name__.startswith("ConnectionClosed"):
        return "connection_lost"
    return "environment_error"
