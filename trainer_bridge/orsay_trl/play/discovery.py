"""Discovery of an environment's tools: shared ones, and those of sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from orsay_client import errors
from orsay_protocol import ListToolsOutput, TerminalToolSpec, ToolSpec

from .episode import Tools
from .naming import model_names
from .source import Source, TaskRef

__all__ = ["discover"]

_log = logging.getLogger("orsay_trl")
_PROBES = 16


async def discover(source: Source, split: str, probes: Sequence[int], *, terminal_as_tool: bool) -> Tools:
    """The tools as a model sees them. A session of each task in ``probes`` adds its own tools.

    A failed session is skipped with a warning. Raises RequestError and Fault for the environment's own
    listing.
    """
    shared = await source.listing()
    limit = asyncio.Semaphore(_PROBES)

    async def probe(index: int) -> ListToolsOutput | None:
        session = source.session(TaskRef(split, index), {})
        try:
            async with limit:
                await session.open()
                try:
                    return await session.listing()
                finally:
                    await session.close()
        except errors.OrsayClientError as exc:
            _log.warning("the tools of task %s[%s] are not known: %s", split, index, exc)
            return None

    found = [listing for listing in await asyncio.gather(*(probe(i) for i in probes)) if listing is not None]
    specs: dict[str, ToolSpec] = {}
    terminal = shared.terminal_tool
    for listing in [shared, *found]:
        terminal = terminal or listing.terminal_tool
        for spec in listing.tools:
            specs.setdefault(spec.name, spec)
    if terminal is not None and terminal_as_tool:
        specs.setdefault(terminal.name, _as_tool(terminal))
        terminal = None
    named = model_names(specs)
    return Tools(
        schemas=tuple(_schema(named[name], spec) for name, spec in specs.items()),
        names={named[name]: name for name in specs},
        terminal=terminal,
    )


def _schema(name: str, spec: ToolSpec) -> dict[str, Any]:
    parameters = dict(spec.input_schema) if spec.input_schema else {"type": "object", "properties": {}}
    return {
        "type": "function",
        "function": {"name": name, "description": spec.description, "parameters": parameters},
    }


def _as_tool(terminal: TerminalToolSpec) -> ToolSpec:
    schema = None
    if terminal.arg is not None:
        schema = {
            "type": "object",
            "properties": {terminal.arg: {"type": "string"}},
            "required": [terminal.arg],
        }
    return ToolSpec(name=terminal.name, description=terminal.description, input_schema=schema)
