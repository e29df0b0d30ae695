"""Environments of OpenEnv, as its users write them; served by OpenEnv's own server or hosted as classes.

As a script it serves some of them, each for so many sessions: openenv_environments.py PORT echo=8 tools=4
below /echo-8 and /tools-4, and a last one without a number as the whole of the server, as images do.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastmcp import FastMCP

from tests.support import openenv_without_page  # noqa: F401 - before all of openenv

# isort: split
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError


class EchoAction(Action):  # type: ignore[misc]  # openenv has no types; so below
    """Say something."""

    message: str = Field(min_length=1, description="What to say")

    @field_validator("message")
    @classmethod
    def not_shouted(cls, value: str) -> str:
        if value.isupper():
            raise PydanticCustomError("shouted", "do not shout")
        return value


class EchoObservation(Observation):  # type: ignore[misc]
    echoed_message: str = ""


class Echo(Environment[EchoAction, EchoObservation, State]):  # type: ignore[misc]
    """The reward of an echo is a tenth of its length; four echoes end the episode."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, greeting: str = "ready") -> None:
        super().__init__()
        self.greeting = greeting
        self.current = State()
        self.closed = False

    def reset(self, seed: int | None = None, episode_id: str | None = None, **rest: Any) -> EchoObservation:
        self.current = State(step_count=0)
        return EchoObservation(echoed_message=f"{self.greeting} {seed}")

    def step(self, action: EchoAction, timeout_s: float | None = None, **rest: Any) -> EchoObservation:
        self.current.step_count += 1
        match action.message:
            case "crash":
                os._exit(3)
            case "raise":
                raise ValueError("no such word")
            case "sleep":
                time.sleep(8)
        return EchoObservation(
            echoed_message=action.message,
            reward=len(action.message) / 10,
            done=self.current.step_count == 4,
            metadata={"steps": self.current.step_count},
        )

    @property
    def state(self) -> State:
        return self.current

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="echo", description="Say a word and hear it.")


class Lonely(Echo):
    """One session at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = False


class Tools(MCPEnvironment):  # type: ignore[misc]
    """The echo environment of today: two MCP tools, and a third that fails."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        mcp = FastMCP("tools")
        self.calls = 0

        @mcp.tool
        def echo_message(message: str) -> str:
            """Echo the message."""
            return message

        @mcp.tool
        def echo_with_length(message: str, times: int = 1) -> dict[str, Any]:
            """Echo the message with its length."""
            return {"message": message * times, "length": len(message) * times}

        @mcp.tool
        def prompt(text: str) -> str:
            """A tool with the name of a method."""
            return text[::-1]

        @mcp.tool
        def fail() -> str:
            """Fail."""
            raise ValueError("it failed")

        super().__init__(mcp)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **rest: Any) -> Observation:
        self.calls = 0
        return Observation(metadata={"status": "ready"})

    async def step_async(self, action: Action, timeout_s: float | None = None, **rest: Any) -> Observation:
        found = await super().step_async(action, timeout_s, **rest)
        if isinstance(found, CallToolObservation):
            self.calls += 1
            found.reward = float(self.calls)
            found.done = self.calls == 3
        return found

    def _step_impl(self, action: Action, timeout_s: float | None = None, **rest: Any) -> Observation:
        raise NotImplementedError

    @property
    def state(self) -> State:
        return State(step_count=self.calls)


class Tasked(Echo):
    """An environment with tasks of its own."""

    WORDS = {"train": ["stone", "river", "cloud"], "test": ["planet"]}

    def list_splits(self) -> list[str]:
        return list(self.WORDS)

    def num_tasks(self, split: str) -> int:
        return len(self.WORDS[split])

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        return {"word": self.WORDS[split][index]}

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "",
        index: int = 0,
        **rest: Any,
    ) -> EchoObservation:
        super().reset(seed)
        return EchoObservation(echoed_message=self.WORDS[split][index])


MODELS: dict[str, Any] = {
    "echo": (Echo, EchoAction, EchoObservation),
    "lonely": (Lonely, EchoAction, EchoObservation),
    "tools": (Tools, CallToolAction, CallToolObservation),
    "tasked": (Tasked, EchoAction, EchoObservation),
}

if __name__ == "__main__":
    port, *named = sys.argv[1:]
    app = FastAPI()
    for each in named:
        name, _, capacity = each.partition("=")
        environment, action, observation = MODELS[name]
        served = create_app(
            environment, action, observation, env_name=name, max_concurrent_envs=int(capacity or 8)
        )
        app.mount(f"/{name}-{capacity}" if capacity else "", served)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
