"""Entry point of Alembic; ``migrate`` provides the connection."""

from alembic import context

from orsay.journal.migrations import VERSION_TABLE
from orsay.journal.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
