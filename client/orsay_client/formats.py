"""Conversion of tools and messages to the formats of model providers.

``openai`` gives the flat function form of the Responses API, ``openai_chat`` the nested one of chat
completions (also what vLLM and chat templates take), ``anthropic`` the form of the Messages API.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from orsay_protocol import (
    ImageBlock,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
)

__all__ = ["Format", "anthropic_messages", "format_messages", "format_tools", "openai_messages"]

Format: TypeAlias = Literal["openai", "openai_chat", "anthropic"]

_FORMATS = ("openai", "openai_chat", "anthropic")
_CHOICES = ("anyOf", "oneOf", "allOf")
_OPENAI_DROPS = frozenset({"additionalProperties", "patternProperties", "not"})
_HOLDS_NAMED_SCHEMAS = frozenset(
    {"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"}
)
_HOLDS_DATA = frozenset({"default", "const", "enum", "examples", "example", "required"})


def format_tools(tools: Iterable[ToolSpec], format: Format) -> list[dict[str, Any]]:
    """Tool definitions for a request to a model. Raises ValueError for an unknown format."""
    _check(format)
    if format == "anthropic":
        return [
            {
                "type": "custom",
                "name": tool.name,
                "description": tool.description,
                "input_schema": _untitled(tool.input_schema)
                if tool.input_schema
                else {"type": "object", "properties": {}},
            }
            for tool in tools
        ]
    found = []
    for tool in tools:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": _for_openai(_untitled(tool.input_schema)) if tool.input_schema else None,
        }
        if format == "openai":
            found.append({"type": "function", **function})
        else:
            if function["parameters"] is None:
                function["parameters"] = {"type": "object", "properties": {}}
            found.append({"type": "function", "function": function})
    return found


def format_messages(messages: Sequence[Message], format: Format) -> list[dict[str, Any]] | dict[str, Any]:
    """Messages for a request to a model: a list, or for Anthropic an object with ``system`` and ``messages``.

    Raises ValueError for an unknown format, and for content that the provider does not support.
    """
    _check(format)
    return anthropic_messages(messages) if format == "anthropic" else openai_messages(messages)


def _check(format: str) -> None:
    if format not in _FORMATS:
        raise ValueError(f"unknown format {format!r}; it may be None or one of: {', '.join(_FORMATS)}")


def _walk(schema: Mapping[str, Any], change: Any) -> dict[str, Any]:
    """Apply ``change`` to each subschema, but not to data that only looks like a schema."""

    def inside(key: str, value: Any) -> Any:
        if key in _HOLDS_DATA:
            return value
        if key in _HOLDS_NAMED_SCHEMAS and isinstance(value, Mapping):
            return {
                name: change(entry) if isinstance(entry, Mapping) else entry for name, entry in value.items()
            }
        if isinstance(value, Mapping):
            return change(value)
        if isinstance(value, list):
            return [change(entry) if isinstance(entry, Mapping) else entry for entry in value]
        return value

    return {key: inside(key, value) for key, value in schema.items()}


def _untitled(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without the keyword ``title``; a property of that name stays."""
    return _walk({key: value for key, value in schema.items() if key != "title"}, _untitled)


def _for_openai(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Reduce a schema to the subset of OpenAI's functions: one of several choices, ``items`` in arrays."""
    chosen = dict(schema)
    for key in _CHOICES:
        options = chosen.pop(key, None)
        if options:
            chosen |= _first_meaningful(options)
            return _for_openai(chosen)
    found = _walk({key: value for key, value in chosen.items() if key not in _OPENAI_DROPS}, _for_openai)
    kind = found.get("type")
    if kind == "array" or (isinstance(kind, list) and "array" in kind):
        found.setdefault("items", {})
    return found


def _first_meaningful(options: Sequence[Any]) -> dict[str, Any]:
    objects = [dict(option) for option in options if isinstance(option, Mapping)]
    meaningful = [option for option in objects if option.get("type") != "null"]
    return (meaningful or objects or [{}])[0]


def openai_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages for chat completions; each tool result becomes a separate message."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "assistant":
            found.append(_openai_assistant(message))
            continue
        found += [
            {"role": "tool", "tool_call_id": block.tool_call_id, "content": _only_text(block)}
            for block in message.blocks
            if isinstance(block, ToolResultBlock)
        ]
        content = [block for block in message.blocks if isinstance(block, TextBlock | ImageBlock)]
        if content or not message.blocks:
            found.append({"role": message.role, "content": _openai_content(content)})
    return found


def _openai_assistant(message: Message) -> dict[str, Any]:
    content = [block for block in message.blocks if isinstance(block, TextBlock | ImageBlock)]
    found: dict[str, Any] = {"role": "assistant", "content": _openai_content(content) if content else None}
    reasoning = [block.text for block in message.blocks if isinstance(block, ReasoningBlock)]
    if reasoning:
        found["reasoning_content"] = "\n\n".join(reasoning)
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.input))},
            }
            for call in calls
        ]
    return found


def _openai_content(blocks: Sequence[TextBlock | ImageBlock]) -> str | list[dict[str, Any]]:
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock):
        return blocks[0].text
    return [
        {"type": "text", "text": block.text}
        if isinstance(block, TextBlock)
        else {"type": "image_url", "image_url": {"url": f"data:{block.mimeType};base64,{block.data}"}}
        for block in blocks
    ]


def _only_text(result: ToolResultBlock) -> str:
    texts = [block.text for block in result.blocks if isinstance(block, TextBlock)]
    if len(texts) < len(result.blocks):
        raise ValueError(
            f"the result of call {result.tool_call_id!r} holds an image, and no tool message of OpenAI can; "
            "use format='anthropic' or format=None"
        )
    return "\n".join(texts)


def anthropic_messages(messages: Sequence[Message]) -> dict[str, Any]:
    """``{"system": str or None, "messages": [...]}``; system messages may only lead."""
    system: list[str] = []
    found: list[dict[str, Any]] = []
    for message in messages:
        if message.role != "system":
            # Anthropic requires tool results first in a turn.
            blocks = sorted(message.blocks, key=lambda block: not isinstance(block, ToolResultBlock))
            found.append({"role": message.role, "content": [_anthropic_block(block) for block in blocks]})
            continue
        if found:
            raise ValueError("a system message after the first turn cannot be expressed for Anthropic")
        for block in message.blocks:
            if not isinstance(block, TextBlock):
                raise ValueError("a system message for Anthropic holds text only")
            system.append(block.text)
    return {"system": "\n\n".join(system) if system else None, "messages": found}


def _anthropic_block(
    block: TextBlock | ImageBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock,
) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ImageBlock():
            source = {"type": "base64", "media_type": block.mimeType, "data": block.data}
            return {"type": "image", "source": source}
        case ReasoningBlock():
            signature = {"signature": block.signature} if block.signature else {}
            return {"type": "thinking", "thinking": block.text, **signature}
        case ToolCallBlock():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": dict(block.input)}
        case ToolResultBlock():
            content = [_anthropic_block(inner) for inner in block.blocks]
            failed = {"is_error": True} if block.is_error else {}
            return {"type": "tool_result", "tool_use_id": block.tool_call_id, "content": content, **failed}
