"""Conversion of OpenEnv's answers into blocks, rewards and faults of ORS."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orsay_protocol import ImageBlock, TextBlock

from ..authoring.results import ToolOutput
from ..errors import Faulted
from .plain import plain

__all__ = ["Reply", "observation_blocks", "to_output", "tool_result"]

_DATA_URL = re.compile(r"data:(image/[\w.+-]+);base64,([A-Za-z0-9+/=\s]+)")
_FILES = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
_SHORTEST_FILE = 64


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a reset or a step: ``observation`` without ``reward``, ``done`` and ``metadata``."""

    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, observation: Any, reward: Any, done: Any, metadata: Any) -> Reply:
        """The reply with the fields of OpenEnv's answer; metadata may also be in the observation."""
        seen = dict(observation) if isinstance(observation, Mapping) else {"observation": observation}
        inner = seen.pop("metadata", None)
        number = None if reward is None else float(reward)
        return cls(plain(seen), number, bool(done), plain(metadata or inner or {}))


def to_output(reply: Reply, blocks: list[Any], *, finished: bool | None = None) -> ToolOutput:
    """A result with the observation's fields, pictures left out, in its metadata."""
    details: dict[str, Any] = {"observation": _without_pictures(reply.observation)}
    if reply.metadata:
        details["metadata"] = reply.metadata
    return ToolOutput(
        blocks=blocks,
        reward=reply.reward,
        finished=reply.done if finished is None else finished,
        metadata=details,
    )


def observation_blocks(observation: Mapping[str, Any]) -> list[Any]:
    """Blocks of an observation: its text if that is the only field, else its fields as JSON; then images."""
    pictures = [picture for value in observation.values() if (picture := _picture(value))]
    rest = _without_pictures(observation)
    values = list(rest.values())
    if len(values) == 1 and isinstance(values[0], str):
        return [TextBlock(text=values[0]), *pictures]
    if not rest and pictures:
        return list(pictures)
    return [TextBlock(text=json.dumps(rest, ensure_ascii=False)), *pictures]


def tool_result(observation: Mapping[str, Any]) -> list[Any]:
    """The blocks of a call of an MCP tool. An error of the tool is an answer to the model.

    Raises Faulted when the call did not reach the tool or never came back.
    """
    error = observation.get("error")
    if isinstance(error, Mapping):
        kind, message = str(error.get("error_type")), str(error.get("message"))
        if kind == "timeout":
            raise Faulted("time_limit", f"the OpenEnv tool timed out: {message}")
        if kind == "transport_error":
            raise Faulted("worker_lost", f"the OpenEnv tool could not be reached: {message}")
        return [TextBlock(text=f"Error: {message}")]
    return _content(observation.get("result"))


def _content(result: Any) -> list[Any]:
    """Blocks of MCP content, or of the plain value that a tool returned instead."""
    if isinstance(result, Mapping) and isinstance(result.get("content"), list):
        blocks = [_content_block(item) for item in result["content"]]
        if blocks:
            return blocks
        result = result.get("data", result.get("structured_content"))
    if isinstance(result, str):
        return [TextBlock(text=result)]
    return [TextBlock(text=json.dumps(result, ensure_ascii=False))]


def _content_block(item: Any) -> Any:
    if isinstance(item, Mapping) and item.get("type") == "text":
        return TextBlock(text=str(item.get("text", "")))
    if isinstance(item, Mapping) and item.get("type") == "image":
        kind = item.get("mimeType") or item.get("mime_type") or "image/png"
        return ImageBlock(data=str(item.get("data", "")), mimeType=str(kind))
    return TextBlock(text=json.dumps(item, ensure_ascii=False))


def _without_pictures(observation: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in observation.items() if _picture(value) is None}


def _picture(value: Any) -> ImageBlock | None:
    """Image in a field, as a data URL or as the base64 text of a file."""
    if not isinstance(value, str) or len(value) < _SHORTEST_FILE:
        return None
    found = _DATA_URL.fullmatch(value)
    if found:
        return ImageBlock(data=found[2], mimeType=found[1])
    for start, kind in _FILES.items():
        if value.startswith(start) and re.fullmatch(r"[A-Za-z0-9+/=\s]+", value):
            return ImageBlock(data=value, mimeType=kind)
    return None
