"""Rollouts that clients log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rollouts",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("name", sa.String()),
        sa.Column("environment", sa.String()),
        sa.Column("variant", sa.String()),
        sa.Column("split", sa.String()),
        sa.Column("step", sa.BigInteger()),
        sa.Column("task_spec", sa.Text()),
        sa.Column("metadata", sa.Text()),
        sa.Column("run_info", sa.Text()),
        sa.Column("client", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("rollouts_started", "rollouts", ["started_at", "id"])
    op.create_index("rollouts_owner", "rollouts", ["owner", "started_at"])
    op.create_index("rollouts_run", "rollouts", ["run", "started_at"])
    op.create_table(
        "rollout_messages",
        sa.Column("rollout", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger()),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("content", sa.Text()),
        sa.Column("summary", sa.Text()),
        sa.Column("reference", sa.Text()),
        sa.Column("name", sa.String()),
        sa.Column("call", sa.String()),
        sa.Column("reward", sa.Float()),
        sa.Column("finished", sa.Boolean(), nullable=False),
        sa.Column("metadata", sa.Text()),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("rollout", "event"),
    )
