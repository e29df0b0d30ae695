"""Offer (tools, actions, splits) of an OpenEnv environment, and the interface of an episode of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from .openenv_results import Reply

__all__ = ["MCP_ACTIONS", "ActionRefused", "Offer", "Play", "ToolOffer"]

MCP_ACTIONS = frozenset({"Action", "CallToolAction", "ListToolsAction"})
"""Titles of action models that represent calls of MCP tools."""


class ActionRefused(Exception):
    """The environment's action model refused the action: an answer to the model, not a fault."""


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """An MCP tool. ``schema`` is the JSON schema of its input."""

    name: str
    description: str
    schema: dict[str, Any]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> ToolOffer:
        """The tool from an entry of an MCP listing, under either name of the schema field."""
        schema = data.get("inputSchema") or data.get("input_schema") or {"type": "object", "properties": {}}
        return cls(str(data["name"]), str(data.get("description") or ""), dict(schema))


@dataclass(frozen=True, slots=True)
class Offer:
    """Actions, tools and splits of an environment. ``action`` is a JSON schema; None: MCP tools only.

    ``splits`` are the environment's own, requested by ``task_name``; without any, tasks are seeds.
    """

    name: str
    description: str
    action: dict[str, Any] | None
    tools: tuple[ToolOffer, ...] = ()
    task_name: str | None = None
    splits: tuple[str, ...] = ()


class Play(Protocol):
    """One episode. Every method raises Faulted, and ``step`` also ActionRefused."""

    async def reset(self, **settings: Any) -> Reply: ...
    async def step(self, action: dict[str, Any]) -> Reply: ...
    async def call(self, name: str, arguments: dict[str, Any]) -> Reply: ...
    async def close(self) -> None: ...
