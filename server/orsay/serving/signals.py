"""Signal handlers of a running server: stop, and reload the configuration."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

__all__ = ["Signals"]


class Signals:
    """Signal handlers, installed in the server's task before the environments load.

    Until ``stopped`` is called, SIGTERM cancels that task and sets ``gave_up``: process 1 of a container has
    no default action for it.

    With ``rereads``, SIGHUP sets ``hung_up``, unless it comes from a closed terminal, which stops the server
    as without ``rereads``.
    """

    def __init__(self, *, rereads: bool) -> None:
        self.hung_up = asyncio.Event()
        self.gave_up = False
        self._task = asyncio.current_task()
        self._stopped = asyncio.Event()
        self._again: Callable[[], None] = lambda: None
        self._had_terminal = _has_terminal()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._give_up)
        if rereads and hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hang_up)

    def stopped(self, *, again: Callable[[], None]) -> asyncio.Event:
        """Event that SIGINT and SIGTERM set; ``again`` is called at the second signal."""
        self._again = again
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._stop)
        return self._stopped

    def _give_up(self) -> None:
        self.gave_up = True
        if self._task is not None:
            self._task.cancel()

    def _stop(self) -> None:
        if self._stopped.is_set():
            self._again()
        self._stopped.set()

    def _hang_up(self) -> None:
        if self._had_terminal and not _has_terminal():
            self._stop()
        else:
            self.hung_up.set()


def _has_terminal() -> bool:
    try:
        return os.isatty(0) or os.isatty(2)
    except OSError:
        return False
