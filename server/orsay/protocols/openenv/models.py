"""Observations, errors and descriptions in the form of OpenEnv's own server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orsay_protocol.blocks import ImageBlock, TextBlock
from orsay_protocol.tools import RunToolError, RunToolErrorReason, RunToolSuccess, ToolSpec
from pydantic import BaseModel, ConfigDict, Field

from ...errors import (
    BadRequest,
    BadTask,
    Faulted,
    InvalidIndex,
    InvalidSplit,
    Overloaded,
    Refused,
    SessionGone,
    UnknownSession,
)
from ...faults import FaultLog
from ..failures import fault_of, text_of

__all__ = [
    "ResetRequest",
    "StepRequest",
    "StepResponse",
    "called",
    "error_code",
    "failure",
    "listed",
    "refused",
    "schema_of",
    "shown",
]

_ERROR_TYPES: dict[RunToolErrorReason | None, str] = {
    "not_found": "tool_not_found",
    "input_validation": "invalid_args",
}
_NO_ARGUMENTS = {"type": "object", "properties": {}}


class ResetRequest(BaseModel):
    """Task to play: ``split`` with ``index``, or ``seed``, or neither for any; other fields are ignored."""

    model_config = ConfigDict(extra="allow")

    seed: int | None = Field(None, description="the same task for the same seed")
    episode_id: str | None = Field(None, max_length=255, description="repeated in the state")
    split: str | None = Field(None, description="the first one unless given")
    index: int | None = None
    task_spec: dict[str, Any] | None = None


class StepRequest(BaseModel):
    """One action. Without a session it is played on a fresh episode, which ``seed`` or ``index`` chooses."""

    model_config = ConfigDict(extra="allow")

    action: dict[str, Any] = Field(description="a tool call, or the arguments of the only tool")
    request_id: str | None = Field(
        None, max_length=255, description="with a session: the same id is not run twice"
    )


class StepResponse(BaseModel):
    """An observation, its reward, and whether the episode is over."""

    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False
    metadata: dict[str, Any] | None = None


def _text(blocks: Sequence[Any]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def _content(blocks: Sequence[Any]) -> list[dict[str, Any]]:
    return [block.model_dump(exclude_none=True) for block in blocks]


def shown(blocks: Sequence[TextBlock | ImageBlock], metadata: dict[str, Any]) -> dict[str, Any]:
    """The prompt as the first observation, and in its metadata, all that older typed clients keep."""
    text = _text(blocks)
    metadata = {**metadata, "prompt": text}
    observation = {"text": text, "blocks": _content(blocks), "metadata": metadata}
    return {"observation": observation, "reward": None, "done": False, "metadata": metadata}


def called(name: str, answer: RunToolSuccess | RunToolError) -> dict[str, Any]:
    """The answer of a tool, or the reason of a refusal, as an observation."""
    if isinstance(answer, RunToolError):
        return refused(name, answer.reason, answer.error)
    output = answer.output
    text, blocks = _text(output.blocks), _content(output.blocks)
    metadata = dict(output.metadata or {})
    observation = {
        "tool_name": name,
        "result": {"data": text, "content": blocks, "is_error": False},
        "error": None,
        "text": text,
        "blocks": blocks,
        "metadata": metadata,
    }
    step: dict[str, Any] = {"observation": observation, "reward": output.reward, "done": output.finished}
    return {**step, "metadata": metadata} if metadata else step


def refused(name: str, reason: RunToolErrorReason | None, text: str) -> dict[str, Any]:
    """An observation of an action for which no tool ran."""
    observation = {
        "tool_name": name,
        "result": None,
        "error": {"error_type": _ERROR_TYPES.get(reason, "execution_error"), "message": text},
        "text": text,
        "blocks": [{"type": "text", "text": text}],
        "metadata": {},
    }
    return {"observation": observation, "reward": None, "done": reason == "episode_finished"}


def schema_of(tool: ToolSpec) -> dict[str, Any]:
    """The JSON schema of the arguments, also for a tool that takes none."""
    return dict(tool.input_schema) if tool.input_schema is not None else dict(_NO_ARGUMENTS)


def listed(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """A list of tools as an observation."""
    found = [
        {"name": tool.name, "description": tool.description, "input_schema": schema_of(tool)}
        for tool in tools
    ]
    return {"observation": {"tools": found, "metadata": {}}, "reward": None, "done": False}


def error_code(error: Refused | Faulted) -> str:
    """The nearest of OpenEnv's error codes; the class of the fault is sent beside it."""
    match error:
        case Overloaded():
            return "CAPACITY_REACHED"
        case BadRequest() | BadTask() | InvalidIndex() | InvalidSplit():
            return "VALIDATION_ERROR"
        case SessionGone() | UnknownSession():
            return "SESSION_ERROR"
        case Faulted(fault="setup_error"):
            return "FACTORY_ERROR"
        case Faulted(fault="worker_lost" | "session_gone" | "cancelled"):
            return "SESSION_ERROR"
        case _:
            return "EXECUTION_ERROR"


def failure(error: Refused | Faulted, faults: FaultLog) -> dict[str, Any]:
    """Data of an error message."""
    data: dict[str, Any] = {"message": text_of(error, faults), "code": error_code(error)}
    fault = fault_of(error, faults)
    if fault is not None:
        data["fault"] = fault.model_dump(by_alias=True)
    return data
