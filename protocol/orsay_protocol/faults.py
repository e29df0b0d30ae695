"""Faults: failures that take the place of an answer of the environment.

An answer of the environment (a refusal by a tool, a reward of 0) is never a fault, and a fault is never an
answer: a trainer retries or masks a rollout with a fault and must not train on it as reward 0.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from pydantic import ConfigDict, Field

from .blocks import Wire

__all__ = ["FAULT_CLASSES", "RETRYABLE", "Fault", "FaultClass"]

FaultClass: TypeAlias = Literal[
    "tool_error",  # the tool raised, or returned something that is no result
    "bad_reward",  # the reward was NaN or infinite
    "setup_error",  # the constructor or setup raised
    "prompt_error",  # get_prompt or get_messages raised
    "score_error",  # score_group raised or returned something that is no list of scores
    "task_error",  # listing or building tasks raised
    "time_limit",  # the call or the setup ran past its time limit
    "result_too_large",  # the result is over the size limit
    "cancelled",  # the client disconnected for good, or the session was deleted meanwhile
    "worker_lost",  # the process or a sandbox that held the session was lost
    "session_gone",  # the session was deleted or expired
    "overloaded",  # a limit is reached: try again later
    "shutdown",  # the server is stopping
    "unknown_task_id",  # the call that the client wants to attach to is unknown
    "internal",  # a fault of the server itself
]

FAULT_CLASSES: tuple[str, ...] = get_args(FaultClass)

RETRYABLE: frozenset[str] = frozenset({"worker_lost", "overloaded", "shutdown", "time_limit"})
"""Classes for which a fresh session may well succeed."""


class Fault(Wire):
    """Data of the stream event ``fault``, which comes just before ``error``.

    ``id`` is the fault's id in the server's log. ``retryable``: a fresh session may well succeed.
    """

    model_config = ConfigDict(populate_by_name=True, extra="ignore")

    fault_class: str = Field(alias="class")
    message: str
    id: str
    retryable: bool
