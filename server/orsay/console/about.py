"""The server and its environments, described for the console."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from orsay_protocol.requests import Split
from pydantic import BaseModel, RootModel

from ..errors import UnknownEnvironment
from ..runtimes.base import EnvironmentInfo, Runtime, RuntimeDecorator
from ..runtimes.router import RouterRuntime
from ..sessions.session import Session, SessionKey
from .live import Tally, count

__all__ = [
    "EnvironmentEntry",
    "Environments",
    "JournalState",
    "ServerEntry",
    "ServerFacts",
    "ToolEntry",
    "describe_environments",
    "describe_server",
]

_KINDS = {
    "ProcessRuntime": "process",
    "LocalRuntime": "local",
    "DockerRuntime": "docker",
    "RemoteRuntime": "remote",
}
"""Kinds of runtimes by class name, since importing all classes would need extras."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts that do not change while the server runs."""

    name: str
    runtime: str
    workers: int | None
    """Number of worker processes, or None."""
    started_at: float


class JournalState(BaseModel):
    """State of the journal. ``lost``: rows dropped since the start."""

    state: Literal["ok", "trouble", "off"]
    reason: str
    lag_s: float
    waiting: int
    lost: int


class ServerEntry(BaseModel):
    """The server. ``keys``: it wants one; ``journal`` is null when it is off. Times in seconds since 1970."""

    name: str
    version: str
    started_at: float
    now: float
    keys: bool
    journal: JournalState | None
    runtime: str
    workers: int | None


class ToolEntry(BaseModel):
    """A tool that every session of the environment has."""

    name: str
    description: str
    input_schema: dict[str, Any] | None


class EnvironmentEntry(BaseModel):
    """An environment and its load; ``pending``: its process or server is not up yet.

    Sessions and calls are those of the key that asks.
    """

    name: str
    key: str
    description: str
    splits: list[Split]
    tools: list[ToolEntry]
    supports_score_group: bool
    state: Literal["ready", "pending"]
    sessions: int
    calls_running: int
    runtime: str
    replayable: bool


class Environments(RootModel[list[EnvironmentEntry]]):
    """All environments; the first is the default."""


def describe_server(facts: ServerFacts, *, keys: bool, journal: JournalState | None) -> ServerEntry:
    """The server as it is now."""
    return ServerEntry(
        name=facts.name,
        version=version("orsay"),
        started_at=facts.started_at,
        now=time.time(),
        keys=keys,
        journal=journal,
        runtime=facts.runtime,
        workers=facts.workers,
    )


async def describe_environments(
    runtime: Runtime, live: Mapping[SessionKey, Session], owner: str
) -> Environments:
    """Known environments, then those of runtimes that are not up yet."""
    tally = await count(live)
    known = [_entry(info, _kind(runtime, info.key), tally, owner) for info in runtime.environments]
    return Environments([*known, *(_awaited(label) for label in runtime.pending)])


def _entry(info: EnvironmentInfo, kind: str, tally: Tally, owner: str) -> EnvironmentEntry:
    tools = [
        ToolEntry(name=tool.name, description=tool.description, input_schema=tool.input_schema)
        for tool in info.listing.tools
    ]
    return EnvironmentEntry(
        name=info.name,
        key=info.key,
        description=info.description,
        splits=list(info.splits),
        tools=tools,
        supports_score_group=info.supports_score_group,
        state="ready",
        sessions=tally.environments[owner, info.key],
        calls_running=tally.running_in[owner, info.key],
        runtime=kind,
        replayable=info.replayable,
    )


def _awaited(label: str) -> EnvironmentEntry:
    return EnvironmentEntry(
        name=label,
        key=label.lower(),
        description="",
        splits=[],
        tools=[],
        supports_score_group=False,
        state="pending",
        sessions=0,
        calls_running=0,
        runtime="",
        replayable=False,
    )


def _kind(runtime: Runtime, key: str) -> str:
    runtime = _unwrapped(runtime)
    if isinstance(runtime, RouterRuntime):
        try:
            runtime = _unwrapped(runtime.member_of(key).runtime)
        except UnknownEnvironment:  # it was removed meanwhile
            return ""
    return _KINDS.get(type(runtime).__name__, type(runtime).__name__)


def _unwrapped(runtime: Runtime) -> Runtime:
    """The runtime below its decorators."""
    while isinstance(runtime, RuntimeDecorator):
        runtime = runtime.wrapped
    return runtime
