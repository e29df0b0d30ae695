"""Conversion of a trajectory to a conversation for chat templates and trainers.

A call becomes an assistant's tool call, its result a tool message. The model's text beside its calls is
missing: it never reached the server.
"""

from __future__ import annotations

import json
from binascii import Error as BinasciiError
from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

from .decode import read_blocks
from .models import Block, Image, Step, Trajectory

__all__ = ["Arguments", "conversation", "functions", "images_of"]

Arguments: TypeAlias = Literal["object", "string"]
"""Form of a tool call's ``arguments``: as chat templates want them, or as OpenAI's API does."""
_Message: TypeAlias = dict[str, Any]
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def conversation(
    played: Trajectory, *, arguments: Arguments = "object", images: bool = True
) -> list[_Message] | None:
    """The messages; None if the client never requested prompt or messages, so that the opening is unknown.

    Images are parts ``{"type": "image_url", "image_url": {"url": "data:…"}}``; those of a result are in a
    user message after it, since tool messages are text only for most models. Concurrent calls belong to one
    assistant message. Calls without a result, or after the end of the episode, are left out.
    """
    if played.messages:
        found = [message for each in played.messages for message in _shown(each, arguments, images)]
    elif played.prompt is not None:
        found = [{"role": "user", "content": _content(played.prompt, images)}]
    else:
        return None
    for turn in _turns(played.steps):
        found.append(_calling([(_id(step), step.name, step.input) for step in turn], arguments))
        found += [
            {"role": "tool", "tool_call_id": _id(step), "name": step.name, "content": _result(step)}
            for step in turn
        ]
        pictures = [_part(block) for step in turn for block in step.blocks if images and _is_picture(block)]
        if pictures:
            found.append({"role": "user", "content": pictures})
    return found


def functions(tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tools of an environment as functions in OpenAI's form."""
    return [
        {
            "type": "function",
            "function": {
                "name": each.get("name", ""),
                "description": each.get("description") or "",
                "parameters": each.get("input_schema") or _NOTHING,
            },
        }
        for each in tools
    ]


def images_of(messages: Sequence[_Message]) -> list[str]:
    """URLs of the images, in their order."""
    return [
        part["image_url"]["url"]
        for message in messages
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]


def _turns(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Calls with a result, grouped by overlap in time."""
    turn: list[Step] = []
    ends = 0.0
    done = [s for s in steps if s.kind == "call" and s.number is not None and not s.discarded]
    for step in sorted(done, key=lambda step: step.started_at):
        if turn and step.started_at >= ends:
            yield turn
            turn = []
        turn.append(step)
        ends = max(ends, step.started_at + (step.total_s or 0.0))
    if turn:
        yield turn


def _shown(message: _Message, arguments: Arguments, images: bool) -> Iterator[_Message]:
    """Convert a message of the environment, which consists of protocol blocks."""
    role, blocks = str(message.get("role", "user")), message.get("blocks")
    blocks = [each for each in blocks if isinstance(each, dict)] if isinstance(blocks, list) else []
    for block in blocks:
        if block.get("type") == "tool_result":
            text = _text(read_blocks(block.get("blocks")))
            yield {"role": "tool", "tool_call_id": str(block.get("tool_call_id")), "content": text}
    shown = [block for block in blocks if block.get("type") in ("text", "image")]
    content = _content(read_blocks(shown), images)
    made = [block for block in blocks if block.get("type") == "tool_call"]
    if made:
        called = [(str(each.get("id")), str(each.get("name")), each.get("input")) for each in made]
        yield {**_calling(called, arguments), "content": content}
    elif shown or not blocks:
        yield {"role": role, "content": content}


def _calling(made: Sequence[tuple[str, str, Any]], arguments: Arguments) -> _Message:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": _arguments(given, arguments)},
            }
            for id, name, given in made
        ],
    }


def _arguments(given: Any, arguments: Arguments) -> Any:
    value = given if isinstance(given, dict) else {}
    return json.dumps(value, ensure_ascii=False) if arguments == "string" else value


def _id(step: Step) -> str:
    return f"call_{step.id}"


def _result(step: Step) -> str:
    if step.fault is not None:
        return f"Error: {step.message or step.fault}"
    if step.error is not None:
        return step.error
    return _text(step.blocks) or "(no output)"


def _text(blocks: Sequence[Block]) -> str:
    return "\n".join(f"[image: {b.mimeType}]" if isinstance(b, Image) else b.text for b in blocks)


def _content(blocks: Sequence[Block], images: bool) -> str | list[dict[str, Any]]:
    """Text, or parts if there are images: many chat templates accept only text."""
    if images and any(_is_picture(block) for block in blocks):
        return [_part(block) for block in blocks]
    return _text(blocks)


def _is_picture(block: Block) -> bool:
    if not isinstance(block, Image):
        return False
    try:
        return bool(a2b_base64(block.data, strict_mode=True))
    except BinasciiError:
        return False


def _part(block: Block) -> dict[str, Any]:
    if isinstance(block, Image) and _is_picture(block):
        return {"type": "image_url", "image_url": {"url": f"data:{block.mimeType};base64,{block.data}"}}
    return {"type": "text", "text": _text([block])}
