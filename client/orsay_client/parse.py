"""Lenient parsers of JSON from older and newer servers into protocol models.

The models refuse unknown fields, which a client must accept. So only known keys are read, missing ones get
defaults, and blocks of unknown type are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from orsay_protocol import (
    GroupScore,
    ImageBlock,
    ListToolsOutput,
    Message,
    ReasoningBlock,
    Split,
    TerminalToolSpec,
    TextBlock,
    ToolCallBlock,
    ToolOutput,
    ToolResultBlock,
    ToolSpec,
)
from orsay_protocol.texts import well_formed
from pydantic import BaseModel, ValidationError

from .errors import BadReward, ProtocolError, ToolRefused

__all__ = ["listing", "messages", "prompt", "scores", "splits", "tool_output"]

_Model = TypeVar("_Model", bound=BaseModel)

_REASONS = frozenset({"not_found", "name_collision", "input_validation", "episode_finished"})


def tool_output(result: Any) -> ToolOutput:
    """Parse the answer of a call. Raises ToolRefused for its negative form."""
    raw = _object(result, "the result of a call")
    if raw.get("ok") is False:
        text = well_formed(str(raw.get("error") or "the environment refused the call"))
        raise ToolRefused(text, reason=_reason(raw.get("reason"), text))
    output = _object(raw.get("output"), "the output of a call")
    metadata = output.get("metadata")
    return ToolOutput(
        blocks=_blocks(output.get("blocks"), (TextBlock, ImageBlock)),
        metadata=metadata if isinstance(metadata, dict) else None,
        reward=_reward(output.get("reward")),
        finished=output.get("finished") is True,
    )


def prompt(raw: Any) -> list[TextBlock | ImageBlock]:
    if isinstance(raw, str):
        return [TextBlock(text=raw)]
    return _blocks(raw, (TextBlock, ImageBlock))


def messages(raw: Any) -> list[Message]:
    kinds = (TextBlock, ImageBlock, ReasoningBlock, ToolCallBlock, ToolResultBlock)
    found = []
    for entry in _list(raw, "the messages"):
        entry = _object(entry, "a message")
        fields = {"role": entry.get("role"), "detail": entry.get("detail")}
        found.append(_make(Message, fields | {"blocks": _blocks(entry.get("blocks"), kinds)}))
    return found


def listing(raw: Any) -> ListToolsOutput:
    """Tools of a server; of old ones, without the fields that came later."""
    answer = _object(raw, "the list of tools")
    terminal = answer.get("terminal_tool")
    types = answer.get("message_block_types")
    return ListToolsOutput(
        tools=[_tool(entry) for entry in _list(answer.get("tools"), "the tools")],
        terminal_tool=_make(TerminalToolSpec, _pick(terminal, TerminalToolSpec)) if terminal else None,
        supports_score_group=answer.get("supports_score_group"),
        message_block_types=[str(entry) for entry in types] if isinstance(types, list) else None,
    )


def splits(raw: Any) -> list[Split]:
    return [_make(Split, _pick(entry, Split)) for entry in _list(raw, "the splits")]


def scores(raw: Any, count: int) -> list[GroupScore]:
    entries = _list(_object(raw, "the scores").get("scores"), "the scores")
    if len(entries) != count:
        raise ProtocolError(f"{count} candidates were sent, {len(entries)} scores came back")
    found = []
    for entry in entries:
        fields = _pick(entry, GroupScore)
        if _reward(fields.get("reward")) is None:
            raise BadReward("a group score holds no reward")
        found.append(_make(GroupScore, fields))
    return found


def _tool(raw: Any) -> ToolSpec:
    fields = _pick(raw, ToolSpec)
    schema = fields.get("input_schema")
    return _make(
        ToolSpec,
        {
            "name": fields.get("name"),
            "description": fields.get("description") or "",
            "input_schema": schema if isinstance(schema, dict) else None,
        },
    )


def _blocks(raw: Any, kinds: Iterable[type[_Model]]) -> list[_Model]:
    by_type = {kind.model_fields["type"].default: kind for kind in kinds}
    found = []
    for entry in _list(raw, "the blocks"):
        kind = by_type.get(entry.get("type")) if isinstance(entry, dict) else None
        if kind is None:
            continue
        fields = _pick(entry, kind)
        if kind is ToolResultBlock:
            fields["blocks"] = _blocks(fields.get("blocks"), (TextBlock, ImageBlock))
        found.append(_make(kind, fields))
    return found


def _reward(raw: Any) -> float | None:
    if raw is None:
        return None
    try:
        found = math.nan if isinstance(raw, bool) or not isinstance(raw, int | float) else float(raw)
    except OverflowError:  # a whole number beyond a float
        found = math.inf
    if not math.isfinite(found):
        raise BadReward("the server sent a reward that is no finite number")
    return found


def _reason(raw: Any, text: str) -> str:
    """The reason, guessed from the text where an old server gives none."""
    if raw in _REASONS:
        return str(raw)
    low = text.lower()
    if "collision" in low:
        return "name_collision"
    return "input_validation" if "validation" in low else "not_found"


def _pick(raw: Any, model: type[BaseModel]) -> dict[str, Any]:
    entry = _object(raw, f"a {model.__name__}")
    return {name: entry[name] for name in model.model_fields if name in entry}


def _make(model: Callable[..., _Model], fields: dict[str, Any]) -> _Model:
    try:
        return model(**fields)
    except ValidationError as exc:
        paths = ", ".join(".".join(str(part) for part in error["loc"]) or "it" for error in exc.errors())
        raise ProtocolError(f"the server sent a {_name(model)} that is none: {paths}") from None


def _name(model: Callable[..., Any]) -> str:
    return getattr(model, "__name__", "model")


def _object(raw: Any, what: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ProtocolError(f"{what} should be a JSON object, not {type(raw).__name__}")
    return raw


def _list(raw: Any, what: str) -> list[Any]:
    if not isinstance(raw, list):
        raise ProtocolError(f"{what} should be a JSON list, not {type(raw).__name__}")
    return raw
