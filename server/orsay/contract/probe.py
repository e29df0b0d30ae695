"""Finding out, by trying, which calls of an unknown environment work, end the episode, or give text back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .inputs import fitting, only_string_property

if TYPE_CHECKING:
    from .target import Target

__all__ = ["Probe", "try_tools"]

_TOOLS_TRIED = 24
_TOKEN = "contract check 7f3a"
_LONG_TEXT = "  \t\u2028\u00a0\u00e9\u2603 \n" + "x" * 300_000 + "  \r\n."


@dataclass(frozen=True, slots=True)
class Probe:
    """Inputs found by trying: a call that works, one that ends the episode, one whose text comes back."""

    working: tuple[str, dict[str, Any]] | None = None
    finishing: tuple[str, dict[str, Any]] | None = None
    repeating: tuple[str, str] | None = None


async def try_tools(target: Target) -> Probe:
    """Call every tool once with an input made from its schema, each in a session of its own."""
    found: dict[str, Any] = {}
    for spec in target.tool_specs()[:_TOOLS_TRIED]:
        name, value = spec["name"], fitting(spec["input_schema"])
        field_name = only_string_property(spec["input_schema"])
        if field_name:
            value = {**value, field_name: _TOKEN}
        output = await _try_call(target, name, value)
        if output is None:
            continue
        found.setdefault("finishing" if output.get("finished") else "working", (name, value))
        if field_name and _TOKEN in _text_of(output) and "repeating" not in found:
            # Some tools shorten or tidy what they give back.
            output = await _try_call(target, name, {field_name: _LONG_TEXT})
            if output is not None and not output.get("finished") and _LONG_TEXT in _text_of(output):
                found["repeating"] = (name, field_name)
    terminal = target.tools.get("terminal_tool")
    if terminal and "finishing" not in found:
        value = {} if terminal["arg"] is None else {terminal["arg"]: _TOKEN}
        output = await _try_call(target, terminal["name"], value)
        if output is not None and output.get("finished"):
            found["finishing"] = (terminal["name"], value)
    return Probe(**found)


async def _try_call(target: Target, name: str, value: Mapping[str, Any]) -> dict[str, Any] | None:
    """The output of a call, or None where there is none."""
    async with target.session() as session:
        reply = await session.call(name, value)
        if reply.status != 200 or not reply.events or reply.events[-1].event != "end":
            return None
        result = reply.result
    return dict(result["output"]) if result.get("ok") else None


def _text_of(output: Mapping[str, Any]) -> str:
    return "".join(str(block.get("text", "")) for block in output.get("blocks", []))
