"""The order in which a session's calls began, and the salt that names of API keys are made with."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("calls", sa.Column("after", sa.Integer()))
    op.create_table(
        "asks",
        sa.Column("session", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("after", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String()),
        sa.Column("fault", sa.String()),
        sa.PrimaryKeyConstraint("session", "number"),
    )
    facts = op.create_table(
        "facts",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.bulk_insert(facts, [{"name": "salt", "value": secrets.token_hex(32)}])
