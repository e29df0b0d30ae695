"""The fork server of ``orsay serve``: a second of CPU for imports is paid once."""

from __future__ import annotations

import atexit
import functools

from .forkserver import ForkServer

__all__ = ["servers"]


@functools.cache
def servers() -> ForkServer:
    """Has imported what a server imports while it starts; its workers are fresh processes as ever."""
    server = ForkServer(
        "orsay.cli.serve",
        "orsay.serving.server",
        "alembic.command",
        "alembic.autogenerate",
        "sqlalchemy.dialects.sqlite",
        "fastapi.openapi.utils",
        "fastapi.staticfiles",
        "uvloop",
        "pygments.formatters",
    )
    atexit.register(server.close)
    return server
