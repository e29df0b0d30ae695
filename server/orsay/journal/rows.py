"""What is written into the journal, as the server knows it when it happens.

Made on the event loop for every call, so they are plain tuples; the writer's thread turns them into rows.
Bytes are JSON unless it says otherwise. ``hide`` holds the values of the session's secrets: the writer takes
them out of everything (S3).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["CallEnded", "CallStarted", "EvaluationSaved", "Prompted", "Row", "SessionEnded", "SessionOpened"]


class SessionOpened(NamedTuple):
    """A session whose constructor is about to run."""

    id: int
    sid: str
    server: str
    environment: str
    split: str | None
    task_index: int | None
    task: str
    owner: str
    client: str
    run: str
    labelled: bool
    step: int | None
    rollout: str | None
    labels: str | None
    trace: str
    digest: str
    replayable: bool
    started_at: float
    request: bytes
    """The OpenSession without its secrets; kept as the value ``request`` beside the row."""
    hide: tuple[str, ...] = ()


class SessionEnded(NamedTuple):
    """A session that is over, however that came."""

    id: int
    ended_at: float
    end_reason: str
    fault: str | None
    calls: int
    faults: int
    reward: float | None
    reward_sum: float | None
    finished: bool
    setup_s: float | None
    hide: tuple[str, ...] = ()


class Prompted(NamedTuple):
    """A prompt, messages or tools that the client was shown; the first of its kind is kept."""

    session: int
    kind: str
    data: bytes
    hide: tuple[str, ...] = ()


class CallStarted(NamedTuple):
    """A call whose task id the client is about to read, while it runs."""

    id: int
    session: int
    kind: str
    task_id: str
    key: str | None
    name: str
    body: bytes
    """The request's body: for a call an object with ``name`` and ``input``."""
    started_at: float
    hide: tuple[str, ...] = ()


class CallEnded(NamedTuple):
    """A call with its result; takes the place of its CallStarted, if there was one."""

    id: int
    session: int
    number: int
    kind: str
    task_id: str
    key: str | None
    name: str
    body: bytes
    wire: bytes
    """The stream events of the result (``chunk``s and ``end``), empty for a fault."""
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
    total_s: float
    hide: tuple[str, ...] = ()


class EvaluationSaved(NamedTuple):
    """The state of an evaluation; takes the place of an earlier one of the same id."""

    id: int
    name: str
    run: str
    owner: str
    environment: str
    split: str | None
    model: str
    started_at: float
    ended_at: float | None
    summary: str
    report: bytes
    hide: tuple[str, ...] = ()


Row: TypeAlias = SessionOpened | SessionEnded | Prompted | CallStarted | CallEnded | EvaluationSaved
