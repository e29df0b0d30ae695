"""Signals to a running server: stop, and read the configuration again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

__all__ = ["Signals"]


class Signals:
    """Handlers of signals, made in the server's own task before the environments load.

    Until ``stopped`` is called, SIGTERM cancels that task, and ``gave_up`` is set: as the first process of a
    container, a server would not be ended by it otherwise.

    With ``rereads``, SIGHUP sets ``hung_up`` from now on, unless it comes because the server's terminal went
    away: then it stops the server, as it does without.
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
        """Event that SIGINT and SIGTERM set from now on; ``again`` is called at the second signal."""
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
