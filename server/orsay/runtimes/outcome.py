"""Outcome of a tool call or a group score, ready for the wire."""

from __future__ import annotations

from dataclasses import dataclass

from orsay_protocol.sse import encode_result
from orsay_protocol.tools import RunToolError, RunToolErrorReason

from ..errors import Faulted

__all__ = ["Outcome", "episode_finished", "refusal"]


@dataclass(slots=True)  # not frozen: that makes the one object of every call twice as dear
class Outcome:
    """An answer (``wire`` holds the events ``chunk`` and ``end``) or a fault, never both.

    ``discarded`` holds the events of what the tool returned when the answer is a refusal all the same: the
    episode had finished meanwhile (D4). ``queue_s`` and ``run_s`` are how long the call waited for others of
    its session, and how long it ran; None where the runtime does not know.
    """

    wire: bytes = b""
    reward: float | None = None
    finished: bool = False
    fault: Faulted | None = None
    discarded: bytes = b""
    queue_s: float | None = None
    run_s: float | None = None


def refusal(reason: RunToolErrorReason, error: str) -> Outcome:
    """The answer to a call that is not run."""
    return Outcome(encode_result(RunToolError(error=error, reason=reason).model_dump_json().encode()))


def episode_finished(name: str) -> Outcome:
    """The answer to a call of tool ``name`` after the end of its episode."""
    text = f"{name!r} was refused: the episode has finished and takes no more calls"
    return refusal("episode_finished", text)
