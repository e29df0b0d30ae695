"""Translation of actions, in all forms that OpenEnv clients send, into tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orsay_protocol.tools import ToolSpec

from ...errors import BadRequest
from .models import schema_of

__all__ = ["action_schema", "lists_tools", "tool_call"]

_CALL_KEYS = frozenset({"type", "tool", "tool_name", "arguments", "metadata"})


def lists_tools(action: Mapping[str, Any]) -> bool:
    """True for an action that lists the tools."""
    return action.get("type") == "list_tools" and set(action) <= {"type", "metadata"}


def tool_call(action: Mapping[str, Any], tools: Sequence[ToolSpec]) -> tuple[str, dict[str, Any]]:
    """Name and arguments.

    ``{"type": "call_tool", "tool_name": …, "arguments": {…}}`` is always a call, ``{"tool": …, "arguments":
    {…}}`` unless the only tool has an argument ``tool``; any other object is the arguments of the only tool.
    Raises BadRequest.
    """
    named = action.get("tool_name", action.get("tool"))
    if isinstance(named, str) and set(action) <= _CALL_KEYS and not _means_the_only_tool(action, tools):
        arguments = action.get("arguments", {})
        if not isinstance(arguments, dict):
            raise BadRequest("the arguments of a tool call are a JSON object")
        return named, arguments
    if len(tools) != 1:
        names = ", ".join(tool.name for tool in tools) or "none"
        raise BadRequest(
            'the action names no tool: send {"type": "call_tool", "tool_name": …, "arguments": {…}};'
            f" there are: {names}"
        )
    own = _properties(tools[0])
    return tools[0].name, {
        key: value for key, value in action.items() if key in own or key not in ("metadata", "type")
    }


def _means_the_only_tool(action: Mapping[str, Any], tools: Sequence[ToolSpec]) -> bool:
    if action.get("type") == "call_tool" or len(tools) != 1:
        return False
    return bool({"tool", "tool_name"} & set(action) & _properties(tools[0]))


def _properties(tool: ToolSpec) -> set[str]:
    return set(schema_of(tool).get("properties", {}))


def action_schema(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The JSON schema of the actions that ``tool_call`` accepts."""
    call = {
        "title": "CallToolAction",
        "type": "object",
        "properties": {
            "type": {"const": "call_tool", "default": "call_tool"},
            "tool_name": {"type": "string", "enum": [tool.name for tool in tools]},
            "arguments": {"type": "object", "default": {}},
        },
        "required": ["tool_name"],
    }
    if len(tools) != 1:
        return call
    return {"title": "Action", "anyOf": [schema_of(tools[0]), call]}
