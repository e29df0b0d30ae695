"""Export of rollouts that clients logged: conversations as JSON lines, or whole ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json
from sqlalchemy import Connection

from .read.chat import Arguments
from .read.rollouts import (
    LoggedMessage,
    LoggedRollout,
    RolloutFilter,
    RolloutSummary,
    count_rollouts,
    rollout_page,
    whole_rollouts,
)

__all__ = ["RolloutExport", "RolloutRecipe", "messages_of"]

_PAGE = 100
_ROLES = {"user_message": "user", "system_message": "system"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRecipe:
    """Selection and form; ``full``: whole rollouts instead of conversations. Rewards are the last ones."""

    wanted: RolloutFilter = field(default_factory=RolloutFilter)
    reward_min: float | None = None
    reward_max: float | None = None
    finished: bool = False
    full: bool = False
    arguments: Arguments = "object"


class RolloutExport:
    """One pass over the rollouts, newest first, a page at a time.

    ``seen`` counts those that were looked at, of ``total`` (known after the first page), ``written`` those
    that were given out.
    """

    def __init__(self, recipe: RolloutRecipe) -> None:
        self.recipe = recipe
        self.total: int | None = None
        self.seen = self.written = 0
        self.done = False
        self._before: str | None = None

    def lines(self, connection: Connection) -> bytes:
        """The next page as JSON lines, perhaps none; ``done`` is true after the last."""
        if self.total is None:
            self.total = count_rollouts(connection, self.recipe.wanted)
        page = rollout_page(connection, self.recipe.wanted, _PAGE, self._before)
        self._before, self.done = page.next, page.next is None
        self.seen += len(page.items)
        ids = [int(each.id) for each in page.items if self._is_wanted(each)]
        found = whole_rollouts(connection, ids)
        self.written += len(found)
        return b"".join(to_json(self._record(each), inf_nan_mode="null") + b"\n" for each in found)

    def _is_wanted(self, found: RolloutSummary) -> bool:
        recipe = self.recipe
        if recipe.finished and not found.finished:
            return False
        if recipe.reward_min is None and recipe.reward_max is None:
            return True
        low = float("-inf") if recipe.reward_min is None else recipe.reward_min
        high = float("inf") if recipe.reward_max is None else recipe.reward_max
        return found.reward is not None and low <= found.reward <= high

    def _record(self, found: LoggedRollout) -> dict[str, Any]:
        if self.recipe.full:
            return found.model_dump()
        record = found.model_dump(exclude={"items", "messages", "client", "owner"})
        scored = [each.reward for each in found.items if each.reward is not None]
        messages = messages_of(found.items, arguments=self.recipe.arguments)
        return {"messages": messages, "rewards": scored, **record}


def messages_of(items: Iterable[LoggedMessage], *, arguments: Arguments = "object") -> list[dict[str, Any]]:
    """The conversation in OpenAI's form; reasoning is ``reasoning_content`` of the assistant's message."""
    found: list[dict[str, Any]] = []
    turn: dict[str, Any] | None = None  # of the assistant, which may still get calls

    def assistant(part: str) -> dict[str, Any]:
        nonlocal turn
        if turn is None or (turn.get(part)) or (part != "tool_calls" and "tool_calls" in turn):
            turn = {"role": "assistant", "content": ""}
            found.append(turn)
        return turn

    names: dict[str | None, str | None] = {}
    for item in items:
        if item.kind == "reasoning":
            assistant("reasoning_content")["reasoning_content"] = item.content or item.summary or ""
        elif item.kind == "assistant_message":
            assistant("content")["content"] = item.content or ""
        elif item.kind == "tool_call":
            names[item.call] = item.name
            if turn is None:
                assistant("content")
            assert turn is not None
            turn.setdefault("tool_calls", []).append(_call(item, arguments))
        else:
            turn = None
            found.append(_other(item, names))
    return found


def _other(item: LoggedMessage, names: dict[str | None, str | None]) -> dict[str, Any]:
    if item.kind == "tool_result":
        name = names.get(item.call) or ""
        return {"role": "tool", "tool_call_id": item.call, "name": name, "content": item.content or ""}
    return {"role": _ROLES.get(item.kind, "user"), "content": item.content or ""}


def _call(item: LoggedMessage, arguments: Arguments) -> dict[str, Any]:
    given: Any = item.content or "{}"
    if arguments == "object":
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):  # a model may write anything
            given = {"arguments": given}
    return {"id": item.call, "type": "function", "function": {"name": item.name, "arguments": given}}
