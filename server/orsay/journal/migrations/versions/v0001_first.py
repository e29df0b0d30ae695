"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_Id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "calls",
        sa.Column("id", _Id, autoincrement=False, nullable=False),
        sa.Column("session", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer()),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("key", sa.String()),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("input", sa.Text()),
        sa.Column("result", sa.Text()),
        sa.Column("reward", sa.Float()),
        sa.Column("finished", sa.Boolean(), nullable=False),
        sa.Column("discarded", sa.Boolean(), nullable=False),
        sa.Column("fault", sa.String()),
        sa.Column("fault_id", sa.String()),
        sa.Column("message", sa.Text()),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("queue_s", sa.Float()),
        sa.Column("run_s", sa.Float()),
        sa.Column("stream_s", sa.Float()),
        sa.Column("total_s", sa.Float()),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("calls_session", "calls", ["session", "id"])
    op.create_table(
        "evaluations",
        sa.Column("id", _Id, autoincrement=False, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("split", sa.String()),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float()),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("report", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_evaluations_run"), "evaluations", ["run"])
    op.create_table(
        "large_values",
        sa.Column("row", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("field", sa.String(), nullable=False),
        sa.Column("session", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("row", "field"),
    )
    op.create_index(op.f("ix_large_values_session"), "large_values", ["session"])
    op.create_table(
        "prompts",
        sa.Column("session", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("text", sa.Text()),
        sa.PrimaryKeyConstraint("session", "kind"),
    )
    op.create_table(
        "scores",
        sa.Column("call", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("candidate", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("session", sa.BigInteger(), nullable=False),
        sa.Column("reward", sa.Float()),
        sa.Column("detail", sa.Text()),
        sa.PrimaryKeyConstraint("call", "candidate"),
    )
    op.create_index(op.f("ix_scores_session"), "scores", ["session"])
    op.create_table(
        "sessions",
        sa.Column("id", _Id, autoincrement=False, nullable=False),
        sa.Column("sid", sa.String(), nullable=False),
        sa.Column("server", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("split", sa.String()),
        sa.Column("task_index", sa.Integer()),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("client", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("labelled", sa.Boolean(), nullable=False),
        sa.Column("step", sa.Integer()),
        sa.Column("rollout", sa.String()),
        sa.Column("labels", sa.Text()),
        sa.Column("trace", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("replayable", sa.Boolean(), nullable=False),
        sa.Column("secrets", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("setup_s", sa.Float()),
        sa.Column("ended_at", sa.Float()),
        sa.Column("end_reason", sa.Text()),
        sa.Column("fault", sa.String()),
        sa.Column("calls", sa.Integer()),
        sa.Column("faults", sa.Integer()),
        sa.Column("reward", sa.Float()),
        sa.Column("reward_sum", sa.Float()),
        sa.Column("finished", sa.Boolean()),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_sessions_sid"), "sessions", ["sid"])
    op.create_index("sessions_environment", "sessions", ["environment", "id"])
    op.create_index("sessions_open", "sessions", ["server", "ended_at"])
    op.create_index("sessions_run", "sessions", ["run", "step", "id"])
    op.create_index("sessions_task", "sessions", ["environment", "task", "id"])
