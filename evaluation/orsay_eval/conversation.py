"""A conversation in the shape of chat completions, kept so that any endpoint takes it.

Arguments that are no JSON go back as an empty object beside the error, since templates of open models refuse
anything else; images of a tool's result follow in a message of the user, since tool messages carry text only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orsay_client import format_messages
from orsay_protocol import ImageBlock, TextBlock, ToolSpec

from .moves import Call, Move, Opening, Result

__all__ = ["Conversation", "model_names"]

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 64
_LONGEST_QUOTE = 500
_REASONING = ("reasoning_content", "reasoning")  # as vLLM, SGLang and others call it
_EMPTY = {"type": "object", "properties": {}}


class Conversation:
    """What was said in one episode: ``messages`` and ``tools`` are what the next request carries."""

    def __init__(self, opening: Opening, *, system: str | None = None) -> None:
        self.messages: list[dict[str, Any]] = []
        if system:
            self.messages.append({"role": "system", "content": system})
        shown = format_messages(list(opening.messages), "openai_chat")
        assert isinstance(shown, list)
        self.messages += shown
        names = model_names(tool.name for tool in opening.tools)
        self.tools = [_function(tool, names[tool.name]) for tool in opening.tools]
        self._real = {seen: real for real, seen in names.items()}

    def hear(self, results: Sequence[Result], note: str) -> None:
        """Add what calls brought, and what the model is asked."""
        pictures: list[dict[str, Any]] = []
        for result in results:
            text = _text(result.blocks)
            self.messages.append(
                {"role": "tool", "tool_call_id": result.call.id, "content": text or "(no output)"}
            )
            found = [block for block in result.blocks if isinstance(block, ImageBlock)]
            if found:
                pictures.append({"type": "text", "text": f"Images in the result of {result.call.name}:"})
                pictures += [_image(block) for block in found]
        if pictures:
            self.messages.append({"role": "user", "content": pictures})
        if note:
            self.messages.append({"role": "user", "content": note})

    def say(self, message: Mapping[str, Any], keep_reasoning: bool) -> Move:
        """Add the model's answer, and read the calls in it."""
        text = _plain(message.get("content"))
        own: dict[str, Any] = {"role": "assistant", "content": text or None}
        if keep_reasoning:
            own |= {name: message[name] for name in _REASONING if isinstance(message.get(name), str)}
        calls = [self._call(one, place) for place, one in enumerate(message.get("tool_calls") or ())]
        if calls:
            own["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": seen, "arguments": json.dumps(dict(call.input), ensure_ascii=False)},
                }
                for call, seen in calls
            ]
        elif own["content"] is None:
            own["content"] = ""  # an answer of nothing at all is refused by some endpoints
        self.messages.append(own)
        return Move([call for call, _ in calls], text)

    def _call(self, found: Mapping[str, Any], place: int) -> tuple[Call, str]:
        """The call, and the name by which the model knows the tool."""
        function = found.get("function") or found.get("custom") or {}
        seen = str(function.get("name") or "")
        id = str(found.get("id") or f"call_{len(self.messages)}_{place}")
        real = self._real.get(seen)
        if real is None:
            known = ", ".join(self._real) or "none"
            return Call(seen, id=id, broken=f"There is no tool {seen!r}. Tools: {known}."), _sent(seen)
        raw = function.get("arguments") if "arguments" in function else function.get("input")
        try:
            given = raw if isinstance(raw, Mapping) else _loads(raw)
        except (ValueError, RecursionError) as exc:
            return Call(real, id=id, broken=_broken(raw, f"are not valid JSON ({exc})")), seen
        if not isinstance(given, Mapping):
            return Call(real, id=id, broken=_broken(raw, "are not a JSON object")), seen
        return Call(real, dict(given), id), seen


def model_names(names: Iterable[str]) -> dict[str, str]:
    """For each tool's name one that chat endpoints carry: letters, digits, ``_`` and ``-``, 64 at most."""
    wanted = list(dict.fromkeys(names))
    fine = {name for name in wanted if name and len(name) <= _LONGEST_NAME and not _FOREIGN.search(name)}
    found: dict[str, str] = {}
    for name in wanted:
        seen = stem = name if name in fine else _FOREIGN.sub("_", name)[:56].strip("_") or "tool"
        number = 1
        while name not in fine and (seen in fine or seen in found.values()):
            number += 1
            seen = f"{stem}_{number}"
        found[name] = seen
    return found


def _function(tool: ToolSpec, name: str) -> dict[str, Any]:
    schema = dict(tool.input_schema) if tool.input_schema else _EMPTY
    return {
        "type": "function",
        "function": {"name": name, "description": tool.description, "parameters": schema},
    }


def _sent(name: str) -> str:
    """A name that the model made up, as an endpoint takes it back."""
    return _FOREIGN.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def _loads(raw: Any) -> Any:
    text = str(raw or "").strip()
    return json.loads(text, parse_constant=_no_json) if text else {}


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _broken(raw: Any, why: str) -> str:
    text = str(raw)
    quoted = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"
    return f"The arguments of this call {why}, and it was not made. They were: {quoted}"


def _text(blocks: Iterable[TextBlock | ImageBlock]) -> str:
    return "\n".join(
        block.text if isinstance(block, TextBlock) else f"[image: {block.mimeType}]" for block in blocks
    )


def _image(block: ImageBlock) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{block.mimeType};base64,{block.data}"}}


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return ""
