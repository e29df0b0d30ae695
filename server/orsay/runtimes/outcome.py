"""Outcome of a tool call or a group score, ready for the wire."""

from __future__ import annotations

from dataclasses import dataclass

from orsay_protocol.sse import encode_result
from orsay_protocol.tools import RunToolError, RunToolErrorReason

from ..errors import Faulted

__all__ = ["Outcome", "episode_finished", "refusal"]


@dataclass(slots=True)  # not frozen, which would double the cost of an object that every call creates
class Outcome:
    """Result of a call: ``wire`` (the events ``chunk`` and ``end``) or a fault, never both.

    ``discarded`` has the events of the tool's own result if the answer is a refusal because the episode had
    finished meanwhile (D4). ``queue_s`` and ``run_s`` are the durations of waiting for other calls of the
    session and of the run; None if unknown.
    """

    wire: bytes = b""
    reward: float | None = None
    finished: bool = False
    fault: Faulted | None = None
    discarded: bytes = b""
    queue_s: float | None = None
    run_s: float | None = None


def refusal(reason: RunToolErrorReason, error: str) -> Outcome:
    """The answer that refuses a call."""
    return Outcome(encode_result(RunToolError(error=error, reason=reason).model_dump_json().encode()))


def episode_finished(name: str) -> Outcome:
    """The refusal of a call of tool ``name`` after the end of the episode."""
    text = f"{name!r} was refused: the episode has finished and takes no more calls"
    return refusal("episode_finished", text)
