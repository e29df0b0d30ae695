"""Replay of a lost session on a fresh one: repeats its calls and compares the answers.

Prior art: recovery by deterministic replay of a command log. Evaluations and the training bridge use it after
a retryable fault, so that a model continues its episode.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from orsay_protocol import JSONObject, ToolOutput

from . import errors
from .errors import Diverged

__all__ = ["AnsweredCall", "CallableSession", "answer", "replay", "require_same_prompt"]


class CallableSession(Protocol):
    """An open session; raises the errors of ``orsay_client.errors``."""

    async def call(
        self, name: str, input: JSONObject | None = None, *, timeout_s: float | None = None
    ) -> ToolOutput: ...


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """One call and its answer: ``output``, or the ``refusal`` of the environment."""

    tool: str
    input: JSONObject
    output: ToolOutput | None
    refusal: errors.ToolRefused | None = None

    def has_answer_of(self, other: AnsweredCall) -> bool:
        """Compare the parts that a model or a reward sees; metadata may contain times and ids."""
        return self._answer() == other._answer()

    def _answer(self) -> tuple[Any, ...]:
        if self.output is None:
            return (None if self.refusal is None else self.refusal.message,)
        return (list(self.output.blocks), self.output.reward, self.output.finished)


async def answer(
    session: CallableSession, tool: str, input: JSONObject, *, timeout_s: float | None
) -> AnsweredCall:
    """Make one call; a refusal is an answer too. Raises TimeLimit over ``timeout_s``, and Fault."""
    try:
        return AnsweredCall(tool, input, await session.call(tool, input, timeout_s=timeout_s))
    except errors.ToolRefused as refusal:
        return AnsweredCall(tool, input, None, refusal)
    except TimeoutError:
        raise errors.TimeLimit(f"{tool!r} took longer than {timeout_s} s") from None


def require_same_prompt(lost: object, fresh: object) -> None:
    """Raises Diverged if the prompt of a fresh session differs from that of the lost one."""
    if fresh != lost:
        raise Diverged("a fresh session began with another prompt than the one that was lost")


async def replay(session: CallableSession, calls: Iterable[AnsweredCall], *, timeout_s: float | None) -> None:
    """Repeat the calls of a lost session, in order. Raises Diverged at the first different answer."""
    for call in calls:
        again = await answer(session, call.tool, call.input, timeout_s=timeout_s)
        if not again.has_answer_of(call):
            raise Diverged(f"a fresh session answered {call.tool!r} otherwise than the one that was lost")
