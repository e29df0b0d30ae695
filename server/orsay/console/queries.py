"""Models of the query strings of the console's endpoints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints

__all__ = [
    "EvaluationsQuery",
    "ExportQuery",
    "FilterQuery",
    "RolloutsQuery",
    "RunsQuery",
    "SeriesQuery",
    "TasksQuery",
    "TrajectoriesQuery",
]

_LONGEST = 1_000
_LARGEST = 2**31 - 1

Name = Annotated[str, StringConstraints(max_length=_LONGEST, pattern=r"^[^\x00]*$")]
"""Text without characters that a database refuses."""
Id = Annotated[int, Field(ge=0, le=2**63 - 1)]


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FilterQuery(_Query):
    """Filter of sessions; all conditions must hold."""

    environment: Name | None = None
    run: Name | None = None
    split: Name | None = None
    task: Name | None = Field(None, description="as trajectories name it: `train:17`, or `spec:` and a hash")
    sid: Name | None = Field(None, description="the session's `X-Session-ID`")
    step: int | None = Field(None, ge=-_LARGEST, le=_LARGEST, description="of training")
    reward_min: FiniteFloat | None = None
    reward_max: FiniteFloat | None = None
    fault: Name | None = Field(None, description="`any`, `none` or a class")
    finished: bool | None = Field(None, description="whether the environment finished the episode")
    text: Name | None = Field(None, description="words of prompts, inputs and results")
    since: FiniteFloat | None = Field(None, description="begun then or later, seconds since 1970")
    until: FiniteFloat | None = Field(None, description="begun before then")


class TrajectoriesQuery(FilterQuery):
    """Query of a page of sessions."""

    limit: int = Field(50, ge=1, le=500)
    before: Id | None = Field(None, description="`next` of the page above")


class ExportQuery(FilterQuery):
    """Query of a download of all sessions that match."""

    format: Literal["jsonl"] = "jsonl"
    faults: bool = Field(False, description="also episodes that were lost to a fault")
    living: bool = Field(False, description="also sessions that have not ended")
    trials: bool = Field(False, description="also sessions of `orsay check`, `orsay play`, the playground")
    full: bool = Field(False, description="whole trajectories rather than conversations for training")
    images: bool = Field(True, description="without them, they are named in the text")
    arguments: Literal["object", "string"] = Field("object", description="of tool calls")


class RolloutsQuery(_Query):
    """Query of a page of rollouts; all conditions must hold."""

    environment: Name | None = None
    run: Name | None = None
    split: Name | None = None
    step: int | None = Field(None, ge=-_LARGEST, le=_LARGEST, description="of training")
    since: FiniteFloat | None = Field(None, description="begun then or later, seconds since 1970")
    until: FiniteFloat | None = Field(None, description="begun before then")
    limit: int = Field(50, ge=1, le=500)
    before: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,12}(\.[0-9]{1,12})?-[0-9]{1,19}$")] | None = (
        Field(None, description="`next` of the page above")
    )


class RunsQuery(_Query):
    """The newest runs."""

    limit: int = Field(100, ge=1, le=1_000)
    success: FiniteFloat = Field(1.0, description="a reward from which an episode is a success")


class SeriesQuery(_Query):
    """One run."""

    run: Name
    environment: Name | None = None
    split: Name | None = None
    success: FiniteFloat = Field(1.0, description="a reward from which an episode is a success")


class TasksQuery(_Query):
    """The tasks of some sessions."""

    environment: Name | None = None
    run: Name | None = None
    split: Name | None = None
    success: FiniteFloat = Field(1.0, description="a reward from which a task is solved")


class EvaluationsQuery(_Query):
    """A page of evaluations."""

    limit: int = Field(100, ge=1, le=1_000)
    before: Id | None = Field(None, description="id of the last one of the page above")
