"""Models of request bodies and of compound answers."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, field_validator, model_validator

from .blocks import JSONObject, Message, Wire
from .headers import MOST_SECRET_BYTES, MOST_SECRETS, check_secrets

__all__ = [
    "CallTool",
    "CancelCall",
    "CreateSession",
    "GetTask",
    "GetTaskRange",
    "GroupCandidate",
    "GroupScore",
    "ListTasks",
    "NumTasks",
    "ScoreGroup",
    "ScoreGroupOutput",
    "Split",
    "SplitType",
]

SplitType: TypeAlias = Literal["train", "validation", "test"]


class Split(Wire):
    """A named set of tasks, with its type."""

    name: str
    type: SplitType


_SECRETS = f"At most {MOST_SECRETS}, their names and values {MOST_SECRET_BYTES:,} bytes together in UTF-8."


class CreateSession(Wire):
    """Body of ``/create``: exactly one task source, ``task_spec`` or ``split`` with ``index``.

    ``secrets`` in the body is what clients up to openreward 0.1.62 send; newer ones use the header X-Secrets.
    """

    env_name: str | None = None
    task_spec: JSONObject | None = None
    split: str | None = None
    index: int | None = None
    toolset_name: str | None = None
    secrets: dict[str, str | None] | None = Field(None, description=_SECRETS)

    @field_validator("secrets", mode="before")
    @classmethod
    def _bounded(cls, value: object) -> object:
        if isinstance(value, dict):
            check_secrets(value)
        return value

    @model_validator(mode="after")
    def _one_task_source(self) -> CreateSession:
        if (self.split is None) != (self.index is None):
            raise ValueError("'split' and 'index' belong together: send both or neither")
        if (self.task_spec is None) == (self.split is None):
            raise ValueError("send exactly one task source: either 'task_spec', or 'split' and 'index'")
        return self


class CallTool(Wire):
    """Body of ``/call``. With ``task_id`` the request attaches to a call and never starts one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    input: dict[str, Any]
    task_id: str | None = None


class CancelCall(Wire):
    """Body of ``/cancel``."""

    task_id: str


class GroupCandidate(Wire):
    """One rollout of a group, as messages."""

    messages: list[Message]
    metadata: JSONObject | None = None


class GroupScore(Wire):
    """The score of the candidate at the same position."""

    reward: float
    metadata: JSONObject | None = None


class ScoreGroup(Wire):
    """Body of ``/score_group``."""

    candidates: list[GroupCandidate]
    task_id: str | None = None


class ScoreGroupOutput(Wire):
    """Data of the ``end`` event of ``/score_group``."""

    scores: list[GroupScore]


class ListTasks(Wire):
    """Body of ``/tasks``."""

    split: str


class NumTasks(Wire):
    """Body of ``/num_tasks``."""

    split: str


class GetTask(Wire):
    """Body of ``/task``; a negative index counts from the end."""

    split: str
    index: int


class GetTaskRange(Wire):
    """Body of ``/task_range``: half open, as a Python slice."""

    split: str
    start: int | None = None
    stop: int | None = None
