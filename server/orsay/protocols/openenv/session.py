"""Session of one OpenEnv client: an environment and its current episode, if any.

``reset`` ends the episode and opens a session for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orsay_protocol.tools import RunToolError, RunToolSuccess, ToolSpec

from ...runtimes.base import EnvironmentInfo
from ..session_driver import Choice, SessionDriver, SessionDrivers, all_tools
from .actions import lists_tools, tool_call
from .models import ResetRequest, called, listed, shown

__all__ = ["OpenEnvSession"]


class OpenEnvSession:
    """Session of an OpenEnv client. With ``driver`` it is open already, and resets keep its id."""

    def __init__(
        self,
        drivers: SessionDrivers,
        owner: str,
        info: EnvironmentInfo,
        secrets: dict[str, str],
        *,
        driver: SessionDriver | None = None,
        sid: str | None = None,
        traceparent: str | None = None,
    ) -> None:
        self._drivers = drivers
        self._owner = owner
        self.info = info
        self._secrets = secrets
        self._traceparent = traceparent
        self._sid = driver.sid if driver is not None else sid
        self.driver = driver
        self._episode_id: str | None = None
        self._tools: Sequence[ToolSpec] | None = None

    async def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        """The first observation of a new episode. Raises ValidationError, Refused or Faulted."""
        request = ResetRequest.model_validate(data)
        choice = Choice.model_validate(data)
        await self.close()
        driver = await self._open(choice)
        self._episode_id = request.episode_id
        metadata: dict[str, Any] = {"environment": self.info.key, "session_id": driver.sid}
        if driver.split is not None:
            metadata |= {"split": driver.split, "index": driver.index}
        return shown(await driver.prompt(), metadata)

    async def step(self, action: dict[str, Any], key: str | None = None) -> dict[str, Any]:
        """The observation after an action; without a reset before, on any task."""
        if lists_tools(action):
            return listed(await self.tools())
        if self.driver is None:
            await self._open(Choice())
        name, arguments = tool_call(action, await self.tools())
        return called(name, await self.call(name, arguments, key))

    async def call(
        self, name: str, arguments: dict[str, Any], key: str | None = None
    ) -> RunToolSuccess | RunToolError:
        driver = self.driver or await self._open(Choice())
        return await driver.call(name, arguments, key)

    async def tools(self) -> Sequence[ToolSpec]:
        """Tools of the session; without one, those that every session has."""
        if self.driver is None:
            return all_tools(self.info.listing)
        if self._tools is None:
            self._tools = await self.driver.tools()
        return self._tools

    def state(self) -> dict[str, Any]:
        """State of the episode. Raises SessionGone when its session has ended."""
        driver = self.driver
        if driver is None:
            return {"episode_id": None, "step_count": 0, "environment": self.info.key}
        session = driver.touch()
        return {
            "episode_id": self._episode_id or session.sid,
            "step_count": session.call_count,
            "environment": self.info.key,
            "session_id": session.sid,
            "split": driver.split,
            "index": driver.index,
            "reward": session.reward,
            "done": session.finished,
        }

    async def open(self) -> SessionDriver:
        """The session, opened for any task if there is none."""
        return self.driver or await self._open(Choice())

    async def close(self) -> None:
        """End the episode; safe to call twice."""
        driver, self.driver, self._tools = self.driver, None, None
        if driver is not None:
            await driver.close()
        elif self._sid is not None:
            await self._drivers.sessions.delete(self._sid, self._owner)

    async def _open(self, choice: Choice) -> SessionDriver:
        self.driver = await self._drivers.open(
            self._owner, self.info, choice, self._secrets, sid=self._sid, traceparent=self._traceparent
        )
        return self.driver
