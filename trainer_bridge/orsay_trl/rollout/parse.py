"""Parser of a model's turn into text and tool calls, on top of transformers' and TRL's parser.

A malformed call raises nothing: it becomes an error message for the model.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orsay_protocol.texts import well_formed

from ..play.parsing import unguarded
from .tokens import tokenizer_of, vendored_name

__all__ = ["Call", "Turn", "TurnParser"]

_MARKS = (
    "<tool_call>",
    "<|tool_call>",
    "<|tool_call_start|>",
    "<｜tool▁call▁begin｜>",
    "<atem:invoke",
    "to=functions.",
    '{"name":',
)
_SHOWN = 200

_DEEPSEEK_V3 = {
    "defaults": {"role": "assistant"},
    "start_anchor_pattern": r"(?:<｜Assistant｜>(?:<think>\n?)?|<｜tool▁outputs▁end｜>)",
    "fields": {
        "reasoning_content": {
            "open_pattern": r"(?:<think>)?(?=[\s\S]*?</think>)",
            "close_pattern": r"</think>\s*",
            "content": "text",
        },
        "tool_calls": {
            "open_pattern": r"(?:<｜tool▁calls▁begin｜>)?\s*<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
            r"(?P<name>[^\n]+)\n```json\n",
            "close_pattern": r"\n```<｜tool▁call▁end｜>\s*(?:<｜tool▁calls▁end｜>)?",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"close_pattern": r"<｜end▁of▁sentence｜>\s*|$", "content": "text"},
    },
}


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of the model, not validated against the tool's schema."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the model: text and calls."""

    text: str
    """Text of the turn without reasoning, calls and end marks."""
    calls: tuple[Call, ...] = ()
    problem: str | None = None
    """Error for the model about a malformed call. There are no ``calls`` then."""


class TurnParser:
    """Parser of turns in the format of one tokenizer.

    The format is the tokenizer's own ``response_template`` where it has one, otherwise TRL's for the chat
    template. The tokenizer is not changed. Without either, ``can_call`` is False and turns are plain text.
    """

    def __init__(self, processing_class: Any) -> None:
        from trl import chat_template_utils  # an optional dependency

        self._parse = chat_template_utils.parse_response
        self._tokenizer = copy.copy(tokenizer_of(processing_class))
        unguarded(self._tokenizer)
        self._tokenizer.chat_template = _original(processing_class.chat_template)
        self._equip(chat_template_utils)
        fields = (getattr(self._tokenizer, "response_template", None) or {}).get("fields", {})
        legacy = getattr(self._tokenizer, "response_schema", None) is not None
        self.can_call = "tool_calls" in fields or legacy
        self._marks = _opening_marks(fields.get("tool_calls", {})) if not legacy else ("<tool_call>",)

    def parse(
        self, ids: Sequence[int], *, prefix: Sequence[int], tools: Sequence[Mapping[str, Any]] = ()
    ) -> Turn:
        """The turn in ``ids``, which continues ``prefix``. ``tools`` decide the types of arguments where the
        format writes them as text."""
        written = self._tokenizer.decode(list(ids))
        if not self.can_call:
            return Turn(self.plain(ids))
        try:
            message = self._parse(self._tokenizer, list(ids), prefix=list(prefix), tools=list(tools) or None)
            calls = tuple(_call(found) for found in message.get("tool_calls") or ())
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as exc:
            return Turn(self.plain(ids), problem=_complaint(str(exc)))
        if not calls and self._begins_call(written):
            return Turn(str(message.get("content") or ""), problem=_complaint())
        return Turn(str(message.get("content") or "").strip(), calls)

    def plain(self, ids: Sequence[int]) -> str:
        """The whole turn as text, reasoning included, without special tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def _begins_call(self, written: str) -> bool:
        after_reasoning = written.rpartition("</think>")[2]
        return any(mark in after_reasoning for mark in self._marks)

    def _equip(self, known: Any) -> None:
        has = any(
            getattr(self._tokenizer, name, None) is not None
            for name in ("response_template", "response_schema")
        )
        if has or self._tokenizer.chat_template is None:
            return
        try:
            known.add_response_schema(self._tokenizer)
        except ValueError:  # TRL has these templates but no parser for them
            name = vendored_name(self._tokenizer.chat_template)
            if name == "deepseekv3":
                self._tokenizer.response_template = _DEEPSEEK_V3
            elif name == "diffusion_gemma":
                self._tokenizer.response_template = known.gemma4_template


def _call(found: Mapping[str, Any]) -> Call:
    """Parse one call. Raises ValueError."""
    function = found.get("function", found)
    name, arguments = function.get("name"), function.get("arguments")
    if isinstance(arguments, str):
        arguments = json.loads(arguments) if arguments.strip() else {}
    if not isinstance(name, str) or not name:
        raise ValueError("a call must name its tool")
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {name!r} must be a JSON object")
    return Call(well_formed(name), arguments)


def _complaint(why: str = "") -> str:
    reason = f" ({why.splitlines()[0][:_SHOWN]})" if why else ""
    return f"Error: this tool call could not be read{reason}. Nothing was called; write it again in full."


def _opening_marks(calls: Mapping[str, Any]) -> tuple[str, ...]:
    """Texts that begin a call in this format."""
    if "open" in calls:
        opened = calls["open"]
        return (opened,) if isinstance(opened, str) else tuple(opened)
    plain = re.sub(r"\\(.)", r"\1", str(calls.get("open_pattern", "")))
    return tuple(mark for mark in _MARKS if mark in plain)


def _original(template: Any) -> str | None:
    """The published form of a template that TRL changed for training: TRL identifies formats by it."""
    from importlib.resources import files  # beside its only use

    if isinstance(template, dict):
        template = template.get("default")
    if not template:
        return None
    name = vendored_name(template)
    if name is None or not name.endswith("_training"):
        return str(template)
    published = files("trl").joinpath("chat_templates", name.removesuffix("_training") + ".jinja")
    return published.read_text(encoding="utf-8") if published.is_file() else str(template)
