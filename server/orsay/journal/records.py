"""Records for the journal, as the server makes them when something happens.

Made on the event loop for every call, so they are plain tuples; the writer thread turns them into rows. Bytes
are JSON unless noted otherwise. ``hide`` redacts the session's secrets in all fields (S3).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from orsay_protocol.redact import Redactor

__all__ = [
    "CallEnded",
    "CallStarted",
    "EvaluationSaved",
    "Prompted",
    "RolloutLogged",
    "RolloutOpened",
    "Row",
    "SandboxUsed",
    "SessionEnded",
    "SessionOpened",
]


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
    hash_seed: int | None
    started_at: float
    request: bytes
    """The OpenSession without its secrets; kept as the value ``request`` beside the row."""
    hide: Redactor | None = None


class SessionEnded(NamedTuple):
    """The end of a session, for any reason."""

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
    hide: Redactor | None = None


class Prompted(NamedTuple):
    """A prompt, messages or tools that the client was shown; the first of its kind is kept.

    In a session that may be rebuilt, ``number`` is its position among all ended operations (else 0), and
    ``after`` the number of operations that had ended when it was requested (-1: not even setup). A repeated
    answer has a ``digest`` and no ``data``, a failure has a ``fault`` and no ``data``.
    """

    session: int
    kind: str
    data: bytes
    hide: Redactor | None = None
    number: int = 0
    after: int = 0
    digest: str | None = None
    fault: str | None = None


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
    after: int | None = None
    """Number of events of its session that had ended when it began."""
    hide: Redactor | None = None


class CallEnded(NamedTuple):
    """A call with its result; replaces its CallStarted, if there was one."""

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
    after: int | None = None
    """As of CallStarted."""
    hide: Redactor | None = None


class EvaluationSaved(NamedTuple):
    """The state of an evaluation; replaces an earlier one of the same id."""

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
    hide: Redactor | None = None


class SandboxUsed(NamedTuple):
    """Something that a session did in a sandbox: the fields are the columns of ``sandbox_events``."""

    id: int
    session: int
    sandbox: str
    kind: str
    call: str | None
    what: str
    started_at: float
    output: bytes | None = None
    """Bytes that the command wrote, of any kind; more than is kept, so that secrets in them are whole."""
    exit_code: int | None = None
    timed_out: bool = False
    duration_s: float | None = None
    size_bytes: int | None = None
    reason: str | None = None
    detail: str | None = None
    hide: Redactor | None = None


class RolloutOpened(NamedTuple):
    """A rollout that a client logs: the columns of ``rollouts``. It comes without secrets (``hide``)."""

    id: int
    event: str
    owner: str
    run: str
    name: str | None
    environment: str | None
    variant: str | None
    split: str | None
    step: int | None
    task_spec: str | None
    metadata: str | None
    run_info: str | None
    client: str
    started_at: float
    hide: None = None


class RolloutLogged(NamedTuple):
    """A message of such a rollout, without secrets: the columns of ``rollout_messages``."""

    rollout: int
    event: str
    number: int | None
    kind: str
    content: str | None
    summary: str | None
    reference: str | None
    name: str | None
    call: str | None
    reward: float | None
    finished: bool
    metadata: str | None
    at: float
    hide: None = None


Row: TypeAlias = (
    SessionOpened
    | SessionEnded
    | Prompted
    | CallStarted
    | CallEnded
    | EvaluationSaved
    | SandboxUsed
    | RolloutOpened
    | RolloutLogged
)
