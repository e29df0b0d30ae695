"""Conversion of author code's return values into the models of the wire.

Accepts our own models, equivalent models of other packages (``compat``), and plain Python values: a string,
an image, a list of both. Every function raises TypeError or ValueError (such as pydantic's ValidationError),
which names the value that was found.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from inspect import isawaitable
from typing import Annotated, Any, SupportsFloat, TypeAlias, TypeVar

from orsay_protocol import (
    Blocks,
    GroupScore,
    ImageBlock,
    ListToolsOutput,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
)
from orsay_protocol import ToolOutput as WireToolOutput
from pydantic import BaseModel, BeforeValidator

from .images import image_block, is_image

__all__ = [
    "Block",
    "ToolOutput",
    "flatten",
    "to_blocks",
    "to_listing",
    "to_messages",
    "to_output",
    "to_scores",
    "when_ready",
]

Block: TypeAlias = TextBlock | ImageBlock
T = TypeVar("T")

_READY = (TextBlock, ImageBlock, Mapping)
_CONTENT: dict[str, type[Block]] = {"text": TextBlock, "image": ImageBlock}


def _ready_blocks(value: Any) -> Any:
    """Strings and images among the blocks of a ToolOutput become blocks; pydantic checks the rest."""
    if type(value) is list:
        for item in value:
            if type(item) is not TextBlock and type(item) is not ImageBlock:
                break
        else:
            return value
    elif isinstance(value, str | TextBlock | ImageBlock) or is_image(value):
        value = [value]
    elif not isinstance(value, Sequence):
        return value
    return [item if isinstance(item, _READY) else _block(item) for item in value]


class ToolOutput(WireToolOutput):
    """Result of a tool: ``blocks`` for the model, an optional ``reward``, and ``finished`` at the end.

    ``blocks`` also takes a str, a PIL image, a numpy array or the bytes of an image file, alone or in a
    list. ``metadata`` is JSON for the trainer, not for the model. Raises ValidationError.
    Standard: data types, execution.
    """

    blocks: Annotated[Blocks, BeforeValidator(_ready_blocks)]


def to_output(value: Any, tool_name: str) -> WireToolOutput:
    """The result of a tool call. Raises TypeError, which names the tool, for any other value."""
    if isinstance(value, WireToolOutput):
        return value
    try:
        if isinstance(value, BaseModel) and _named(value, "ToolOutput"):
            return WireToolOutput.model_validate(value.model_dump())
        if isinstance(value, list | tuple):
            return WireToolOutput(blocks=[_block(item) for item in value])
        return WireToolOutput(blocks=[_block(value)])
    except (TypeError, ValueError) as exc:
        raise TypeError(f"tool {tool_name!r}: {exc}") from exc


def to_blocks(value: Any) -> list[Block]:
    """Prompt blocks of what ``get_prompt`` or ``prompt`` returned; messages are flattened."""
    if isinstance(value, str):
        return [TextBlock(text=value)]
    if isinstance(value, list | tuple):
        if _holds_messages(value):
            return flatten(to_messages(value))
        return [_block(item) for item in value]
    if isinstance(value, BaseModel) and _named(value, "Message"):
        return flatten([_message(value)])
    return [_block(value)]


def to_messages(value: Any) -> list[Message]:
    """Messages of what ``get_messages`` or ``prompt`` returned; anything else becomes one user message."""
    if isinstance(value, list | tuple) and (not value or _holds_messages(value)):
        return [_message(item) for item in value]
    if isinstance(value, BaseModel) and _named(value, "Message"):
        return [_message(value)]
    return [Message(role="user", blocks=to_blocks(value))]


def to_scores(value: Any, count: int) -> list[GroupScore]:
    """Scores of what ``score_group`` returned for ``count`` candidates.

    Raises TypeError for a score that is no number, ValueError when there are more or fewer than candidates.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise TypeError(f"score_group must return a list of scores; it returned {_found(value)}")
    scores = [_score(item, number) for number, item in enumerate(value)]
    if len(scores) != count:
        raise ValueError(f"score_group returned {len(scores)} scores for {count} candidates")
    return scores


def to_listing(value: Any) -> ListToolsOutput:
    """Tools of what ``list_task_tools`` returned: a ListToolsOutput or a list of ToolSpec."""
    if isinstance(value, ListToolsOutput):
        return value
    if isinstance(value, list | tuple):
        return ListToolsOutput(tools=[_spec(item) for item in value])
    if isinstance(value, BaseModel) and _named(value, "ListToolsOutput"):
        return ListToolsOutput.model_validate(value.model_dump())
    raise TypeError(f"list_task_tools must return a ListToolsOutput; it returned {_found(value)}")


def flatten(messages: Sequence[Message]) -> list[Block]:
    """A conversation as prompt blocks, for clients that know no messages.

    One user message of text and images is its blocks as they are. Otherwise each message gets a header with
    its role, and what is neither text nor image is written as text; ``detail`` says what a block was.
    """
    if len(messages) == 1 and messages[0].role == "user":
        blocks = [block for block in messages[0].blocks if isinstance(block, TextBlock | ImageBlock)]
        if len(blocks) == len(messages[0].blocks):
            return blocks
    flat: list[Block] = []
    for message in messages:
        flat.append(TextBlock(text=f"[{message.role}]", detail={"role": message.role}))
        for block in message.blocks:
            flat.extend(_as_content(block))
    return flat


def when_ready(value: Any, then: Callable[[Any], T]) -> T | Awaitable[T]:
    """``then(value)``, or an awaitable of it if ``value`` is awaitable."""
    if not isawaitable(value):
        return then(value)

    async def later() -> T:
        return then(await value)

    return later()


def _as_content(block: BaseModel) -> list[Block]:
    if isinstance(block, ReasoningBlock):
        return [TextBlock(text=f"<think>{block.text}</think>", detail={"type": "reasoning"})]
    if isinstance(block, ToolCallBlock):
        arguments = json.dumps(dict(block.input), ensure_ascii=False)
        detail = {"type": "tool_call", "id": block.id}
        return [TextBlock(text=f"[tool_call {block.name}] {arguments}", detail=detail)]
    if isinstance(block, ToolResultBlock):
        header = "[tool_result (error)]" if block.is_error else "[tool_result]"
        detail = {"type": "tool_result", "tool_call_id": block.tool_call_id}
        return [TextBlock(text=header, detail=detail), *block.blocks]
    if isinstance(block, TextBlock | ImageBlock):
        return [block]
    raise TypeError(f"{_found(block)} is no block of a message")


def _block(value: Any) -> Block:
    if isinstance(value, TextBlock | ImageBlock):
        return value
    if isinstance(value, str):
        return TextBlock(text=value)
    if isinstance(value, BaseModel):
        dump = value.model_dump()
        model = _CONTENT.get(str(dump.get("type")))
        if model is not None:
            return model.model_validate(dump)
    elif isinstance(value, Mapping):
        model = _CONTENT.get(value.get("type", "image" if "data" in value else "text"))
        if model is not None:
            return model.model_validate(dict(value))
    elif is_image(value):
        return image_block(value)
    raise TypeError(
        f"expected a str, a block, an image, a list of those or a ToolOutput; found {_found(value)}"
    )


def _message(value: Any) -> Message:
    if isinstance(value, Message):
        return value
    if isinstance(value, BaseModel):
        return Message.model_validate(value.model_dump())
    if isinstance(value, Mapping):
        return Message.model_validate(dict(value))
    raise TypeError(f"expected a Message; found {_found(value)}")


def _holds_messages(value: Sequence[Any]) -> bool:
    """True for a conversation. Raises TypeError for messages and blocks in one list."""
    kinds = {
        _named(item, "Message")
        if isinstance(item, BaseModel)
        else isinstance(item, Mapping) and "role" in item
        for item in value
    }
    if len(kinds) > 1:
        raise TypeError("expected either messages or blocks; found both in one list")
    return True in kinds


def _score(value: Any, number: int) -> GroupScore:
    if isinstance(value, GroupScore):
        return value
    if isinstance(value, BaseModel) and _named(value, "GroupScore"):
        return GroupScore.model_validate(value.model_dump())
    if isinstance(value, Mapping):
        return GroupScore.model_validate(dict(value))
    if isinstance(value, SupportsFloat):
        return GroupScore(reward=float(value))
    raise TypeError(f"score {number} must be a number or a GroupScore; found {_found(value)}")


def _spec(value: Any) -> ToolSpec:
    if isinstance(value, ToolSpec):
        return value
    return ToolSpec.model_validate(value.model_dump() if isinstance(value, BaseModel) else value)


def _named(value: BaseModel, name: str) -> bool:
    """True where the class, or a base, has this name: other packages use the same names."""
    return name in _class_names(type(value))


@lru_cache(256)
def _class_names(cls: type) -> frozenset[str]:
    return frozenset(each.__name__ for each in cls.__mro__)


def _found(value: Any) -> str:
    return "None" if value is None else type(value).__name__
