"""A conversation in the format of chat completions, normalized so that every endpoint accepts it.

Invalid arguments are replaced by an empty object, beside the error, since templates of open models refuse
anything else; images of a tool's result follow in a user message, since tool messages are text only.
Malformed model output costs a call at most: no parser here raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orsay_client import format_messages
from orsay_protocol import ImageBlock, TextBlock, ToolSpec
from orsay_protocol.texts import well_formed
from pydantic import BaseModel

from .moves import Call, Move, Opening, Result

__all__ = ["Conversation", "model_names"]

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME = 64
_LONGEST_QUOTE = 500
_REASONING = ("reasoning_content", "reasoning")  # as vLLM, SGLang and others call it
_EMPTY = {"type": "object", "properties": {}}


class Conversation:
    """Messages of one episode: ``messages`` and ``tools`` go into the next request."""

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

    def add_results(self, results: Sequence[Result], note: str) -> None:
        """Add results of calls, and a note to the model."""
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

    def add_answer(self, message: Mapping[str, Any] | BaseModel, keep_reasoning: bool) -> Move:
        """Add the model's answer, a message of the openai package or its JSON, and parse its calls."""
        fields = _fields(message)
        text = well_formed(_plain(fields.get("content")))
        own: dict[str, Any] = {"role": "assistant", "content": text or None}
        if keep_reasoning:
            own |= {
                name: well_formed(fields[name]) for name in _REASONING if isinstance(fields.get(name), str)
            }
        calls: list[Call] = []
        echoes: list[dict[str, Any]] = []
        found = fields.get("tool_calls")
        for one in found if isinstance(found, list) else ():
            call, echo = self._call(_fields(one), {call.id for call in calls})
            calls.append(call)
            echoes.append(echo)
        if echoes:
            own["tool_calls"] = echoes
        elif own["content"] is None:
            own["content"] = ""  # some endpoints refuse an empty message
        self.messages.append(own)
        return Move(calls, text)

    def _call(self, found: Mapping[str, Any], ids: set[str]) -> tuple[Call, dict[str, Any]]:
        """The parsed call, and its entry in the conversation; ``ids`` are those of earlier calls."""
        function = _fields(found.get("function") or found.get("custom"))
        name, id = function.get("name"), found.get("id")
        seen = name if isinstance(name, str) else ""
        id = well_formed(id) if isinstance(id, str) else ""
        if not id or id in ids:
            id = f"call_{len(self.messages)}_{len(ids)}"
        real = self._real.get(seen)
        if real is None:
            known = ", ".join(self._real) or "none"
            why = f"There is no tool {_shortened(repr(seen))}. Tools: {known}."
            return Call(seen, id=id, broken=why), _echo(id, _sent(seen))
        raw = function.get("arguments") if "arguments" in function else function.get("input")
        try:
            given = _loads(raw)
            arguments = json.dumps(given, ensure_ascii=False, allow_nan=False)
            arguments.encode()  # a lone surrogate cannot be sent
        except (ValueError, TypeError, RecursionError) as exc:
            return Call(real, id=id, broken=_broken(raw, f"are not valid JSON ({exc})")), _echo(id, seen)
        if not isinstance(given, Mapping):
            return Call(real, id=id, broken=_broken(raw, "are not a JSON object")), _echo(id, seen)
        return Call(real, dict(given), id), _echo(id, seen, arguments)


def model_names(names: Iterable[str]) -> dict[str, str]:
    """Names of tools as chat endpoints accept them, by tool: letters, digits, ``_`` and ``-``, 64 at most."""
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


def _fields(found: Any) -> Mapping[str, Any]:
    """Fields of an object of the openai package, or of its JSON, unchanged; none of anything else."""
    if isinstance(found, BaseModel):
        return dict(found)
    return found if isinstance(found, Mapping) else {}


def _echo(id: str, seen: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": seen, "arguments": arguments}}


def _sent(name: str) -> str:
    """A name that the model invented, in the form that endpoints accept."""
    return _FOREIGN.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def _loads(raw: Any) -> Any:
    """Parse JSON text, an empty object for an empty text; other values are returned unchanged."""
    if not isinstance(raw, str):
        return {} if raw is None else raw
    text = raw.strip()
    return json.loads(text, parse_constant=_no_json) if text else {}


def _no_json(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _broken(raw: Any, why: str) -> str:
    quoted = f" They were: {_shortened(raw)}" if isinstance(raw, str) else ""
    return f"The arguments of this call {why}, and it was not made.{quoted}"


def _shortened(text: str) -> str:
    return well_formed(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…")


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
