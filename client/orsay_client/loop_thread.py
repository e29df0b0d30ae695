"""An event loop on a background thread, for synchronous callers."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from .errors import ClientClosed

__all__ = ["LoopThread"]

_T = TypeVar("_T")
_STOP_S = 60.0


class LoopThread:
    """Runs coroutines for any number of threads until `stop`.

    The thread is a daemon: a forgotten client does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._stopped = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of ``work``; an interrupt of the waiting thread cancels it and waits for its clean-up.

        Raises ClientClosed once stopped, and RuntimeError in a process forked after the start.
        """
        future = self.start(work)
        try:
            return future.result()
        except CancelledError:
            raise ClientClosed("the client was closed meanwhile") from None
        except BaseException:
            if not future.done():
                done = threading.Event()
                future.add_done_callback(lambda _: done.set())
                future.cancel()
                done.wait(_STOP_S)
            raise

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Begin ``work`` without waiting for it. Raises as ``run``."""
        try:
            self._check()
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    def stop(self) -> None:
        """Cancel what still runs and end the thread; safe to call twice."""
        with self._lock:
            if self._stopped or os.getpid() != self._pid:
                return
            self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_STOP_S)

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this client was made before the process forked; make a new Client in the child process"
            )
        if self._stopped:
            raise ClientClosed("the client is closed")
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a Client blocks and cannot be used on its own event loop; use AsyncClient there"
            )

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
