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

        Raises ClientClosed once stopped, and RuntimeError on the loop's own thread, which would wait for
        itself, and in a process forked after the start.
        """
        if self.is_current:
            work.close()
            raise RuntimeError(
                "a Client blocks and cannot be used on its own event loop; use AsyncClient there"
            )
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
        """Begin ``work`` without waiting for it, from any thread. Raises ClientClosed and, after a fork,
        RuntimeError.
        """
        try:
            self._check()
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    @property
    def is_current(self) -> bool:
        """True on the loop's own thread; a garbage collection there may run a finalizer."""
        return threading.current_thread() is self._thread

    def end_with(self, work: Coroutine[Any, Any, object], *, stop: bool = True) -> None:
        """Begin the last ``work``, then ``stop``; nothing is waited for: finalizers run on any thread."""

        async def last() -> None:
            try:
                await work
            finally:
                if stop:
                    self.stop()

        try:
            self.start(last())
        except BaseException as exc:
            work.close()
            if not isinstance(exc, ClientClosed):
                raise

    def stop(self) -> None:
        """Cancel what still runs and end the thread; safe to call twice."""
        with self._lock:
            if self._stopped or os.getpid() != self._pid:
                return
            self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_current:
            self._thread.join(_STOP_S)

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                "this client was made before the process forked; make a new Client in the child process"
            )
        if self._stopped:
            raise ClientClosed("the client is closed")

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
