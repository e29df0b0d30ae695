"""An event loop on a background thread, for synchronous callers."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any, TypeVar

from .errors import ClientClosed

__all__ = ["LoopThread"]

_T = TypeVar("_T")
_STOP_S = 60.0
_log = logging.getLogger("orsay_client")
_ending: set[Future[None]] = set()
_waited_for_in = 0  # process id

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ending.clear)  # the threads that would end them are not in the child


def _wait_at_exit() -> None:
    """Wait for ``_ending`` when this process ends: the threads are daemons.

    As atexit, but children of multiprocessing, which forget the handlers of their parents, heed it too.
    """
    global _waited_for_in
    if _waited_for_in != os.getpid():
        _waited_for_in = os.getpid()
        Finalize(None, lambda: wait(list(_ending), _STOP_S), exitpriority=0)


class LoopThread:
    """Runs coroutines for any number of threads until `stop`, or `leave` of its last user.

    The thread is a daemon: a forgotten client does not keep the process alive.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._stopped = False
        self._users = 1
        self._lock = threading.RLock()  # a finalizer may run within
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of ``work``; an interrupt of the waiting thread cancels it and waits for its clean-up.

        Raises ClientClosed once stopped, and RuntimeError on the loop's own thread, which would wait for
        itself, and in a process forked after the start.
        """
        try:
            self.refuse_own_thread()
        except RuntimeError:
            work.close()
            raise
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
            self._check()  # before the lock, which another thread may hold for ever in a forked child
            with self._lock:  # what is queued after ``stop`` would never run
                self._check()
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise

    def refuse_own_thread(self) -> None:
        """Raises RuntimeError on the loop's own thread, which cannot wait for itself."""
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a Client blocks and cannot be used on its own event loop; use AsyncClient there"
            )

    def end_with(self, work: Coroutine[Any, Any, object], then: Callable[[], object]) -> None:
        """Begin the last ``work`` and call ``then`` after it, on the loop's thread; for finalizers.

        Never waits and never raises: a garbage collection runs on any thread, also on another client's loop,
        whatever locks that holds. Only the end of the interpreter waits. In a forked child nothing is begun.
        """

        async def last() -> None:
            try:
                await work
            finally:
                then()

        def ended(future: Future[None]) -> None:
            work.close()  # it may not have begun
            _ending.discard(future)
            if not future.cancelled() and (error := future.exception()) is not None:
                _log.warning("the end of a forgotten client failed", exc_info=error)

        try:
            future = self.start(last())
        except (ClientClosed, RuntimeError):
            work.close()
            return
        _ending.add(future)
        _wait_at_exit()
        future.add_done_callback(ended)

    def share(self) -> LoopThread:
        """This loop, with one user more."""
        with self._lock:
            self._users += 1
        return self

    def leave(self) -> None:
        """One user less; the last one stops the loop."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self.stop()

    def stop(self) -> None:
        """Cancel what still runs and end the thread; safe to call twice."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if self._stopped:
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
