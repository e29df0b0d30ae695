"""Content blocks and messages: what an environment shows to a model.

Every block carries ``type`` and ``detail`` on the wire, always, since old clients index both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, GetPydanticSchema, model_validator

__all__ = [
    "MESSAGE_BLOCK_TYPES",
    "Blocks",
    "ImageBlock",
    "JSONObject",
    "JSONValue",
    "Message",
    "MessageBlocks",
    "ReasoningBlock",
    "Role",
    "TextBlock",
    "ToolCallBlock",
    "ToolResultBlock",
    "Wire",
]

JSONValue: TypeAlias = Any
# Typed as what may be given, validated as what JSON has: pydantic handles dict and list in its core, but
# Mapping and Sequence in Python.
JSONObject: TypeAlias = Annotated[
    Mapping[str, Any], GetPydanticSchema(lambda _source, handler: handler.generate_schema(dict[str, Any]))
]


class Wire(BaseModel):
    """Base of everything that crosses the wire: an unknown field is an error, not a surprise."""

    model_config = ConfigDict(extra="forbid")


class TextBlock(Wire):
    """Plain text."""

    text: str
    detail: JSONObject | None = None
    type: Literal["text"] = "text"


class ImageBlock(Wire):
    """An image; ``data`` is base64 of the encoded file, ``mimeType`` is the encoding."""

    data: str
    mimeType: str
    detail: JSONObject | None = None
    type: Literal["image"] = "image"


Blocks: TypeAlias = Annotated[
    Sequence[TextBlock | ImageBlock],
    GetPydanticSchema(lambda _source, handler: handler.generate_schema(list[TextBlock | ImageBlock])),
]


class ReasoningBlock(Wire):
    """A model's reasoning inside an assistant message."""

    text: str
    signature: str | None = None
    detail: JSONObject | None = None
    type: Literal["reasoning"] = "reasoning"


class ToolCallBlock(Wire):
    """A tool call inside an assistant message."""

    id: str
    name: str
    input: JSONObject
    detail: JSONObject | None = None
    type: Literal["tool_call"] = "tool_call"


class ToolResultBlock(Wire):
    """The result of the call ``tool_call_id``, inside a user message."""

    tool_call_id: str
    blocks: Blocks
    is_error: bool = False
    detail: JSONObject | None = None
    type: Literal["tool_result"] = "tool_result"


MessageBlock: TypeAlias = TextBlock | ImageBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock
MessageBlocks: TypeAlias = Sequence[MessageBlock]
Role: TypeAlias = Literal["system", "user", "assistant"]

MESSAGE_BLOCK_TYPES = ("text", "image", "reasoning", "tool_call", "tool_result")

_ALLOWED: dict[str, frozenset[str]] = {
    "system": frozenset({"text", "image"}),
    "user": frozenset({"text", "image", "tool_result"}),
    "assistant": frozenset({"text", "image", "reasoning", "tool_call"}),
}


class Message(Wire):
    """One turn of a conversation. Raises ValidationError for a block that its role may not carry."""

    role: Role
    blocks: MessageBlocks
    detail: JSONObject | None = None

    @model_validator(mode="after")
    def _blocks_fit_role(self) -> Message:
        for block in self.blocks:
            if block.type not in _ALLOWED[self.role]:
                allowed = ", ".join(sorted(_ALLOWED[self.role]))
                raise ValueError(
                    f"a {self.role} message cannot hold a {block.type} block; it may hold: {allowed}"
                )
        return self
