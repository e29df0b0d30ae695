"""Programs that evaluate, forked where their imports are done."""

from __future__ import annotations

import atexit
import functools

from tests.support.forkserver import ForkServer

__all__ = ["evaluators"]


@functools.cache
def evaluators() -> ForkServer:
    """For ``python -m orsay eval``, for pytest with the plugin, and for scripts."""
    server = ForkServer(
        "orsay.cli.eval",
        "orsay.cli.eval_progress",
        "orsay_eval.chat",
        "orsay_eval.comparison",
        "orsay_eval.run",
        "httpcore",
        "pytest",
        teardown=False,
    )
    atexit.register(server.close)
    return server
