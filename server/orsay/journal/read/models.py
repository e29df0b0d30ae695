"""Read models of the journal: sessions as trajectories, runs as statistics.

The console's JSON is made of these.

Ids are decimal strings, since JavaScript rounds integers of this size. Times are seconds since 1970,
durations seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from orsay_protocol.blocks import Message
from orsay_protocol.evaluation import EvaluationSummary
from orsay_protocol.tools import ToolSpec
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import definitions_schema

__all__ = [
    "Block",
    "EvaluationItem",
    "Histogram",
    "Image",
    "Page",
    "Point",
    "RunSummary",
    "SandboxItem",
    "Score",
    "Series",
    "Step",
    "Summary",
    "TaskCell",
    "Text",
    "Trajectory",
]


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


@dataclass(frozen=True, slots=True)
class _DescribedAs:
    """Annotation: JSON validated on writing, which readers get without validation, with this schema."""

    model: type[BaseModel]

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(definitions_schema(self.model.__pydantic_core_schema__, []))


class Text(_Read):
    """A block of text."""

    type: Literal["text"] = "text"
    text: str


class Image(_Read):
    """An image; ``data`` is base64 of the encoded file."""

    type: Literal["image"] = "image"
    data: str
    mimeType: str


Block: TypeAlias = Text | Image


class Summary(_Read):
    """One session, without its messages and calls.

    ``reward`` is that of its last scored call, ``reward_sum`` the sum of all, None also where that is beyond
    a float. While the session lives, and
    when its server was killed, both come from its calls; ``ended_at`` is None then.
    """

    id: str
    sid: str
    environment: str
    split: str | None
    task_index: int | None
    task: str
    run: str
    labelled: bool
    step: int | None
    rollout: str | None
    trace: str
    started_at: float
    ended_at: float | None
    setup_s: float | None
    end_reason: str | None
    fault: str | None
    calls: int
    faults: int
    reward: float | None
    reward_sum: float | None
    finished: bool
    owner: str
    client: str
    replayable: bool


class Score(_Read):
    """Group score of one candidate."""

    candidate: int
    reward: float | None
    detail: Any = None


class SandboxItem(_Read):
    """Something that a session did in a sandbox.

    ``what`` is the command, the path of a file that was read or written, or the image of a sandbox that was
    made or has ended. ``output`` is the beginning of what a command wrote, of ``size_bytes`` in all;
    ``exit_code`` is None where the sandbox ended before the command. ``detail`` holds the limits of a
    sandbox, or the reason of its end in words.
    """

    id: str
    sandbox: str
    kind: Literal["made", "command", "read", "write", "ended"]
    call: str | None
    what: str
    output: str | None
    exit_code: int | None
    timed_out: bool
    duration_s: float | None
    size_bytes: int | None
    reason: str | None
    detail: dict[str, Any] | None
    started_at: float


class Step(_Read):
    """One call with its result, and what it did in sandboxes.

    ``error`` and ``reason`` are set when the environment refused the call, ``fault``, ``fault_id`` and
    ``message`` when it failed. ``number`` is None while the call runs, and for a call that was cut off by the
    death of its server.
    """

    id: str
    number: int | None
    kind: str
    task_id: str
    name: str
    input: Any
    blocks: list[Block]
    metadata: Any
    error: str | None
    reason: str | None
    reward: float | None
    finished: bool
    discarded: bool
    fault: str | None
    fault_id: str | None
    message: str | None
    started_at: float
    queue_s: float | None
    run_s: float | None
    stream_s: float | None
    total_s: float | None
    scores: list[Score]
    sandbox: list[SandboxItem] = []


class Trajectory(Summary):
    """One session with its messages and calls.

    ``request`` is how it was opened (``task_spec``, or ``split`` and ``index``); ``prompt``, ``messages``
    and ``tools`` are None when the client never asked for them. ``sandbox`` is what the session did in
    sandboxes outside of calls, as in setup, or while several calls ran.
    """

    labels: dict[str, Any] | None
    request: dict[str, Any] | None
    prompt: list[Block] | None
    messages: list[Annotated[dict[str, Any], _DescribedAs(Message)]] | None
    tools: list[Annotated[dict[str, Any], _DescribedAs(ToolSpec)]] | None
    steps: list[Step]
    sandbox: list[SandboxItem] = []


class Page(_Read):
    """Sessions, newest first. ``next`` is what to give as ``before`` for the next page; None at the end.

    ``unindexed`` counts the sessions that are not in the search index yet.
    """

    items: list[Summary]
    next: str | None = None
    unindexed: int = 0


class RunSummary(_Read):
    """The sessions of one run together.

    ``reward_*`` are the mean of the last rewards and its 95% interval, ``success`` the share of episodes
    whose reward reaches the threshold, ``length_mean`` the calls of an episode. Episodes that were lost to a
    fault are in ``fault_rate`` and in nothing else. ``running`` have not ended yet.
    """

    run: str
    labelled: bool
    environments: list[str]
    first_at: float
    last_at: float
    episodes: int
    running: int
    steps: int
    reward_mean: float | None
    reward_low: float | None
    reward_high: float | None
    success: float | None
    fault_rate: float | None
    length_mean: float | None


class Point(_Read):
    """The episodes of one step of training; without steps, of one stretch of time that begins at ``at``.

    ``n`` counts those that ended, the ones lost to faults among them. ``low`` and ``high`` bound the 95%
    interval of each metric; a mean of one value has none.
    """

    step: int | None
    at: float
    n: int
    reward_mean: float | None
    reward_low: float | None
    reward_high: float | None
    success: float | None
    success_low: float | None
    success_high: float | None
    length_mean: float | None
    length_low: float | None
    length_high: float | None
    fault_rate: float | None
    fault_low: float | None
    fault_high: float | None


class Histogram(_Read):
    """Histogram: ``counts[i]`` rewards from ``edges[i]`` to below ``edges[i + 1]``; the last bin has both."""

    edges: list[float]
    counts: list[int]


class Series(_Read):
    """Course of a run."""

    run: str
    points: list[Point]
    histogram: Histogram


class TaskCell(_Read):
    """Counts of a task: played to an end, and solved."""

    environment: str
    task: str
    split: str | None
    task_index: int | None
    n: int
    solved: int
    reward_mean: float | None
    last_at: float


class EvaluationItem(_Read):
    """An evaluation in a list."""

    id: str
    name: str
    run: str
    owner: str
    environment: str
    split: str | None
    model: str
    started_at: float
    ended_at: float | None
    summary: Annotated[dict[str, Any], _DescribedAs(EvaluationSummary)]
