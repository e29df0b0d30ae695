"""Indexes for the console: pages of a run and of a key, sums over runs and tasks, sessions without an end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_SUMMED = ["owner", "ended_at", "started_at", "labelled", "fault", "finished", "reward", "calls"]


def upgrade() -> None:
    op.drop_index("sessions_run", table_name="sessions")
    op.drop_index("sessions_task", table_name="sessions")
    op.create_index("sessions_run", "sessions", ["run", "id"])
    op.create_index("sessions_owner", "sessions", ["owner", "id"])
    op.create_index("sessions_figures", "sessions", ["run", "step", "environment", "split", *_SUMMED])
    op.create_index(
        "sessions_task", "sessions", ["environment", "task", "split", "task_index", "run", *_SUMMED]
    )
    unended = sa.text("ended_at IS NULL")
    op.create_index("sessions_unended", "sessions", ["id"], sqlite_where=unended, postgresql_where=unended)
