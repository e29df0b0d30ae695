"""Thread pool for synchronous author code: one thread for each running call, kept for a while when idle.

asyncio's default executor is small, so blocking tools of one session would delay all others. Here the number
of threads is a setting, and a full pool refuses instead of queueing.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ...errors import Overloaded

__all__ = ["Interrupted", "Job", "Threads"]


class Interrupted(BaseException):
    """Raised inside author code on a thread whose call ran past its limit or was cancelled."""


class Job:
    """A function that runs on a thread. ``future`` resolves on the event loop."""

    __slots__ = ("_thread", "ended", "future", "over", "run", "stopped")

    def __init__(self, thread: _Thread, future: asyncio.Future[Any], run: Callable[[], Any]) -> None:
        self._thread = thread
        self.future = future
        self.run = run
        self.ended: asyncio.Future[None] | None = None
        self.over = False
        self.stopped = False

    def interrupt(self) -> None:
        """Raise Interrupted in the running function; reaches Python code only, not a blocking C call."""
        self.stopped = True
        self._thread.interrupt(self)


class _Thread(threading.Thread):
    def __init__(self, owner: Threads) -> None:
        super().__init__(name="orsay-author", daemon=True)
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.idle_since = 0.0
        self._owner = owner
        self._current: Job | None = None
        self._lock = threading.Lock()

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                try:
                    with self._lock:  # from here on an interrupt may arrive at any instruction
                        self._current = job
                    if job.stopped:  # stopped before it began
                        raise Interrupted
                    result = job.run()
                except BaseException as exc:
                    error = exc
                self._leave(job)
            except Interrupted as exc:  # raised after the function had returned
                error = error or exc
                self._leave(job)
            try:
                self._owner.loop.call_soon_threadsafe(self._owner.resolve, self, job, result, error)
            except RuntimeError:  # the event loop is closed
                return
            del job, result, error

    def _leave(self, job: Job) -> None:
        with self._lock:
            self._current = None
            if job.stopped:  # a pending exception must not hit the next job
                _raise_in(self.ident, None)

    def interrupt(self, job: Job) -> None:
        with self._lock:
            if self._current is job:
                _raise_in(self.ident, Interrupted)


def _raise_in(ident: int | None, exception: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(ident or 0), None if exception is None else ctypes.py_object(exception)
    )


class Threads:
    """Elastic thread pool of one event loop, used from that loop only."""

    def __init__(self, limit: int, *, idle_s: float = 10.0) -> None:
        self._limit = limit
        self._idle_s = idle_s
        self._idle: list[_Thread] = []
        self._count = 0
        self.loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def count(self) -> int:
        """Threads alive, busy and idle."""
        return self._count

    @property
    def busy(self) -> int:
        """Threads that run author code now."""
        return self._count - len(self._idle)

    async def run(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run ``function`` on a thread of its own, and wait. Raises Overloaded when all threads are busy.

        A cancelled wait interrupts the function, and ends when the function does.
        """
        if self._idle:
            thread = self._idle.pop()
        elif self._count < self._limit:
            thread = _Thread(self)
            self._count += 1
            thread.start()
        else:
            raise Overloaded(
                f"server at maximum capacity: all {self._limit} threads for author code are busy"
            )
        run = partial(contextvars.copy_context().run, function, *args, **kwargs)
        job = Job(thread, self.loop.create_future(), run)
        thread.jobs.put(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            if job.future.cancelled() and not job.over:
                job.ended = self.loop.create_future()
                job.interrupt()
                await job.ended
            raise

    def resolve(self, thread: _Thread, job: Job, result: Any, error: BaseException | None) -> None:
        """Deliver the result of a job, and release its thread."""
        if self._closed:
            self._count -= 1
            thread.jobs.put(None)
        else:
            thread.idle_since = time.monotonic()
            self._idle.append(thread)
            if self._sweep is None:
                self._sweep = self.loop.call_later(self._idle_s, self._expire)
        job.over = True
        if job.ended is not None and not job.ended.done():
            job.ended.set_result(None)
        if job.future.done():
            return
        if error is None:
            job.future.set_result(result)
        elif isinstance(error, StopIteration):  # a future refuses StopIteration
            job.future.set_exception(RuntimeError(f"StopIteration raised by author code: {error}"))
        else:
            job.future.set_exception(error)

    def _expire(self) -> None:
        self._sweep = None
        limit = time.monotonic() - self._idle_s
        keep = []
        for thread in self._idle:
            if thread.idle_since <= limit:
                self._count -= 1
                thread.jobs.put(None)
            else:
                keep.append(thread)
        self._idle = keep
        if keep:
            self._sweep = self.loop.call_later(self._idle_s, self._expire)

    def close(self) -> None:
        """End idle threads now and busy ones when they return, without waiting."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for thread in self._idle:
            self._count -= 1
            thread.jobs.put(None)
        self._idle.clear()
