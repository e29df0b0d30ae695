"""What sessions did in sandboxes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sandbox_events",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("session", sa.BigInteger(), nullable=False),
        sa.Column("sandbox", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("call", sa.String()),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("output", sa.Text()),
        sa.Column("exit_code", sa.Integer()),
        sa.Column("timed_out", sa.Boolean(), nullable=False),
        sa.Column("duration_s", sa.Float()),
        sa.Column("size_bytes", sa.BigInteger()),
        sa.Column("reason", sa.String()),
        sa.Column("detail", sa.Text()),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sandbox_events_session", "sandbox_events", ["session", "id"])
