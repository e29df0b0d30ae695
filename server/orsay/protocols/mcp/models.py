"""Tools, results and the prompt in the types of the ``mcp`` package.

Reward, end of the episode and metadata are in ``_meta`` under the key ``orsay``: they are for the client
program, and hosts do not show ``_meta`` to the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mcp.types as types
from mcp.shared.exceptions import McpError
from orsay_protocol.blocks import ImageBlock, Message, TextBlock
from orsay_protocol.tools import RunToolError, RunToolSuccess, ToolSpec

from ...errors import Faulted, Refused
from ...faults import FaultLog
from ..failures import fault_of, text_of

__all__ = ["META", "PROMPT", "failed", "messages", "result", "text_of_prompt", "tool"]

META = "orsay"
PROMPT = "task"
_FAULT = -32050
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def tool(spec: ToolSpec) -> types.Tool:
    schema = _NO_ARGUMENTS if spec.input_schema is None else dict(spec.input_schema)
    return types.Tool(name=spec.name, description=spec.description, inputSchema=schema)


def result(answer: RunToolSuccess | RunToolError) -> types.CallToolResult:
    """Result of a call. ``isError``: the tool did not run, for example because of wrong arguments."""
    if isinstance(answer, RunToolError):
        content: list[Any] = [types.TextContent(type="text", text=answer.error)]
        meta = {META: {"reason": answer.reason, "finished": answer.reason == "episode_finished"}}
        return types.CallToolResult(content=content, isError=True, _meta=meta)
    output = answer.output
    metadata = {"reward": output.reward, "finished": output.finished, "metadata": output.metadata}
    content = [_content(block) for block in output.blocks]
    return types.CallToolResult(content=content, isError=False, _meta={META: metadata})


def failed(error: Refused | Faulted, faults: FaultLog) -> McpError:
    """A fault as a protocol error, not a result: in a result a model could not distinguish it."""
    fault = fault_of(error, faults)
    data = None if fault is None else fault.model_dump(by_alias=True)
    code = types.INVALID_REQUEST if fault is None else _FAULT
    return McpError(types.ErrorData(code=code, message=text_of(error, faults), data=data))


def messages(conversation: Sequence[Message]) -> types.GetPromptResult:
    """One MCP message for each block; system messages become user messages, as MCP has none."""
    shown = [
        types.PromptMessage(role=_role(message), content=_content(block))
        for message in conversation
        for block in message.blocks
        if isinstance(block, TextBlock | ImageBlock)
    ]
    return types.GetPromptResult(description="the task of this session", messages=shown)


def text_of_prompt(blocks: Sequence[TextBlock | ImageBlock]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def _role(message: Message) -> types.Role:
    return "assistant" if message.role == "assistant" else "user"


def _content(block: TextBlock | ImageBlock) -> types.TextContent | types.ImageContent:
    if isinstance(block, ImageBlock):
        return types.ImageContent(type="image", data=block.data, mimeType=block.mimeType)
    return types.TextContent(type="text", text=block.text)
