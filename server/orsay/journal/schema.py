"""The tables, for SQLite and PostgreSQL alike. ``migrations`` makes and changes them.

Times are seconds since 1970, durations are seconds. Ids are 63-bit integers that grow with time (``ids``).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

__all__ = [
    "asks",
    "calls",
    "evaluations",
    "facts",
    "metadata",
    "prompts",
    "rollout_messages",
    "rollouts",
    "sandbox_events",
    "scores",
    "sessions",
    "values",
]

metadata = MetaData()
_Id = BigInteger().with_variant(Integer, "sqlite")  # there, only INTEGER is the key of the table itself
# Runs and tasks are summed up from an index alone, a tenth of the table.
_SUMMED = ("owner", "ended_at", "started_at", "labelled", "fault", "finished", "reward", "calls")
_UNENDED = text("ended_at IS NULL")

sessions = Table(
    "sessions",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("sid", String, nullable=False, index=True),  # what clients call it: X-Session-ID
    Column("server", String, nullable=False),  # which server hosts it; the same after a restart
    Column("environment", String, nullable=False),
    Column("split", String),
    Column("task_index", Integer),
    Column("task", String, nullable=False),  # "train:17", or "spec:" and a hash: equal for equal tasks
    Column("owner", String, nullable=False),  # of the API key; empty without keys
    Column("client", String, nullable=False),  # User-Agent
    Column("run", String, nullable=False),  # what the client named, else key and day
    Column("labelled", Boolean, nullable=False),  # whether the client named the run
    Column("step", Integer),
    Column("rollout", String),
    Column("labels", Text),  # other labels of the client, as JSON
    Column("trace", String, nullable=False),  # W3C trace id, 32 hex digits
    Column("digest", String, nullable=False),  # of the request, to tell a repeated one from another (L1)
    Column("replayable", Boolean, nullable=False),
    Column("secrets", Boolean, nullable=False),  # whether the client sent any; values are never kept
    Column("hash_seed", BigInteger),  # of the process that plays it; none: random, or not known
    Column("started_at", Float, nullable=False),
    Column("setup_s", Float),
    Column("ended_at", Float),  # none: it lives, or its server was killed
    Column("end_reason", Text),
    Column("fault", String),  # class, of what ended the session or of its first call that failed
    Column("calls", Integer),
    Column("faults", Integer),  # calls that ended in a fault
    Column("reward", Float),  # the last one
    Column("reward_sum", Float),
    Column("finished", Boolean),
    Index("sessions_open", "server", "ended_at"),
    Index("sessions_environment", "environment", "id"),
    Index("sessions_run", "run", "id"),
    Index("sessions_owner", "owner", "id"),
    Index("sessions_figures", "run", "step", "environment", "split", *_SUMMED),
    Index("sessions_task", "environment", "task", "split", "task_index", "run", *_SUMMED),
    Index("sessions_unended", "id", sqlite_where=_UNENDED, postgresql_where=_UNENDED),
)

calls = Table(
    "calls",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("session", BigInteger, nullable=False),
    Column("number", Integer),  # order of the results in their session, from 1; none while it runs
    Column("kind", String, nullable=False),  # call or score_group
    Column("task_id", String, nullable=False),
    Column("key", String),  # Idempotency-Key
    Column("name", String, nullable=False),
    Column("input", Text),  # JSON; large ones are in ``values``
    Column("result", Text),  # JSON, as clients get it; large ones are in ``values``
    Column("reward", Float),
    Column("finished", Boolean, nullable=False),
    Column("discarded", Boolean, nullable=False),  # it came after the end of the episode (D4)
    Column("fault", String),  # class
    Column("fault_id", String),  # what the log calls it
    Column("message", Text),
    Column("started_at", Float, nullable=False),
    Column("queue_s", Float),  # waited for other calls of its session, and for a thread
    Column("run_s", Float),  # the tool itself
    Column("stream_s", Float),  # the answer was an open stream for so long; none: it came at once
    Column("total_s", Float),  # from request to result
    Column("after", Integer),  # how much of its session had ended when it began; none in old journals
    Index("calls_session", "session", "id"),
)

prompts = Table(
    "prompts",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String, primary_key=True),  # prompt, messages or task_tools
    Column("text", Text),  # JSON; large ones are in ``values``
)

asks = Table(  # each request for the prompt, messages or tools of a session that may go on
    "asks",
    metadata,
    Column("session", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),  # among all that ended there, from 1
    Column("kind", String, nullable=False),  # as in ``prompts``, where the first answer of a kind is
    Column("after", Integer, nullable=False),  # how much had ended when it was asked; -1: not even setup
    Column("digest", String),  # of a later answer
    Column("fault", String),  # class
)

scores = Table(
    "scores",
    metadata,
    Column("call", BigInteger, primary_key=True, autoincrement=False),
    Column("candidate", Integer, primary_key=True, autoincrement=False),
    Column("session", BigInteger, nullable=False, index=True),
    Column("reward", Float),
    Column("detail", Text),  # JSON of the rest
)

sandbox_events = Table(  # what a session did in its sandboxes
    "sandbox_events",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("session", BigInteger, nullable=False),
    Column("sandbox", String, nullable=False),  # its id
    Column("kind", String, nullable=False),  # made, command, read, write or ended
    Column("call", String),  # task id of the call that ran meanwhile; none for none, and for several
    Column("what", Text, nullable=False),  # the command, the path of the file, or the image
    Column("output", Text),  # the beginning of a command's; large ones are in ``values``
    Column("exit_code", Integer),  # none: the sandbox ended before the command
    Column("timed_out", Boolean, nullable=False),
    Column("duration_s", Float),  # of a command, or of the making; age of a sandbox that ended
    Column("size_bytes", BigInteger),  # of the whole output, or of the file
    Column("reason", String),  # of the end, in one word
    Column("detail", Text),  # JSON: the limits of a sandbox, or the reason of its end in words
    Column("started_at", Float, nullable=False),
    Index("sandbox_events_session", "session", "id"),
)

rollouts = (
    Table(  # logged by clients, as those of ``openreward`` do; sessions are played here, these anywhere
        "rollouts",
        metadata,
        Column("id", _Id, primary_key=True, autoincrement=False),  # a hash of owner and event
        Column("event", String, nullable=False),  # what the client calls it
        Column("owner", String, nullable=False),  # of the API key; empty without keys
        Column("run", String, nullable=False),
        Column("name", String),
        Column("environment", String),  # as the client names it
        Column("variant", String),
        Column("split", String),
        Column("step", BigInteger),
        Column("task_spec", Text),  # JSON; large ones are in ``values``, as those below
        Column("metadata", Text),
        Column("run_info", Text),
        Column("client", String, nullable=False),  # User-Agent
        Column("started_at", Float, nullable=False),  # by the clock of this server
        Index("rollouts_started", "started_at", "id"),
        Index("rollouts_owner", "owner", "started_at"),
        Index("rollouts_run", "run", "started_at"),
    )
)

rollout_messages = Table(
    "rollout_messages",
    metadata,
    Column("rollout", BigInteger, primary_key=True, autoincrement=False),
    Column("event", String, primary_key=True),  # what the client calls it
    Column("number", BigInteger),  # its position; none for an update
    Column("kind", String, nullable=False),  # user_message, tool_call ... or update: of the rollout itself
    Column("content", Text),  # large ones are in ``values``
    Column("summary", Text),  # of reasoning
    Column("reference", Text),  # to hidden reasoning
    Column("name", String),  # of the tool
    Column("call", String),  # joins a call and its result
    Column("reward", Float),
    Column("finished", Boolean, nullable=False),
    Column("metadata", Text),  # JSON; of an update, what it says
    Column("at", Float, nullable=False),  # by the clock of the client
)

values = Table(
    "large_values",
    metadata,
    Column(
        "row", BigInteger, primary_key=True, autoincrement=False
    ),  # id of the session, call, event or rollout
    Column(
        "field", String, primary_key=True
    ),  # request, input, result, output, a kind of prompt, or of which message what
    Column("session", BigInteger, nullable=False, index=True),
    Column("data", LargeBinary, nullable=False),  # zlib of the JSON
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("name", String, nullable=False),
    Column("run", String, nullable=False, index=True),  # the label of its sessions
    Column("owner", String, nullable=False),
    Column("environment", String, nullable=False),
    Column("split", String),
    Column("model", String, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("summary", Text, nullable=False),  # JSON: mean, intervals, pass@k, faults, tokens
    Column("report", LargeBinary, nullable=False),  # zlib of JSON: the whole result, episode by episode
)

facts = Table(
    "facts",
    metadata,
    Column("name", String, primary_key=True),
    Column(
        "value", String, nullable=False
    ),  # of ``salt``: 64 hex digits, which names of API keys are made with
)
