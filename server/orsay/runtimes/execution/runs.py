"""Runs of author code, each with an owner, a time limit and exactly one result.

A stopped run has a short time to end; after that its result is a fault, and it counts as stuck until it
really ends. A run that takes long reports this once. Durations are counted in ticks of a timer, so that
delays of a busy event loop hardly count.
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from ...errors import Faulted, Refused, exception_text
from ..base import OnResult, Progress, settle

__all__ = ["Group", "Run", "Runs", "run_now"]

_TICK_S = 0.1
_SLOW_TICKS = 4
_SHORTEST_TICK_S = 0.001
_STOP_GRACE_S = 1.0


class Run:
    """One running piece of author code. ``stop`` is allowed at any time, repeatedly."""

    __slots__ = (
        "_answered",
        "_began",
        "_deadline",
        "_group",
        "_limit_s",
        "_on_result",
        "_progress",
        "_reason",
        "_runs",
        "_started",
        "_task",
        "_what",
    )

    def __init__(
        self,
        runs: Runs,
        group: Group | None,
        on_result: OnResult,
        limit_s: float,
        what: str,
        progress: Progress | None,
        began: int,
    ) -> None:
        self._runs = runs
        self._group = group
        self._on_result = on_result
        self._limit_s = limit_s
        self._what = what
        self._progress = progress
        self._began = began
        self._deadline = runs.now() + limit_s
        self._reason: Faulted | None = None
        self._answered = False
        self._started = False
        self._task: asyncio.Task[Any] | None = None

    def stop_clock(self) -> None:
        """Suspend the time limit while the run waits for other calls, which have their own limits."""
        self._deadline = math.inf

    def restart_clock(self) -> None:
        """Start the time limit from now, after waiting."""
        self._deadline = self._runs.now() + self._limit_s

    def stop(self, reason: Faulted) -> None:
        """Cancel the run; its result is ``reason``, when it ends or after a short time."""
        if self._reason is None and self._task is not None and not self._task.done():
            self._reason = reason
            self._deadline = self._runs.now() + _STOP_GRACE_S
            if self._started:  # else _main reads the reason: a task cancelled before its start reports none
                self._task.cancel()

    def _check(self, now: float) -> None:
        if self._answered or now < self._deadline:
            return
        if self._reason is None:
            limit = f"{self._what} ran past its time limit of {self._limit_s:g} s and was stopped"
            self.stop(Faulted("time_limit", limit))
        else:
            self._runs.stuck += 1
            self._answer(None, self._reason)

    async def _main(self, body: Coroutine[Any, Any, Any]) -> None:
        value: Any = None
        error: Faulted | Refused | None = None
        self._started = True
        try:
            if self._reason is None:
                value = await body
            else:
                body.close()
        except asyncio.CancelledError:
            error = Faulted("cancelled", f"{self._what} was cancelled")
        except BaseException as exc:  # SystemExit too: out of a task it would end the loop
            error = _error_of(exc)
        self._runs.quick.pop(self, None)
        self._runs.slow.pop(self, None)
        if self._answered:
            self._runs.stuck -= 1
        elif self._reason is not None:
            self._answer(None, self._reason)
        else:
            self._answer(value, error)

    def _answer(self, value: Any, error: Faulted | Refused | None) -> None:
        self._answered = True
        group = self._group
        if group is not None:
            group.running -= 1
            if group.empty is not None and not group.running:
                group.empty.set()
        on_result, self._on_result, self._progress = self._on_result, _ignore, None  # breaks reference cycles
        on_result(value, error)


def run_now(work: Coroutine[Any, Any, Any], on_result: OnResult) -> None:
    """Run ``work`` synchronously, without task, limit and stop; it neither waits nor runs author code."""
    value: Any = None
    error: Faulted | Refused | None = None
    try:
        work.send(None)
        work.close()
        error = Faulted("internal", "code that must not wait tried to")
    except StopIteration as done:
        value = done.value
    except BaseException as exc:
        error = _error_of(exc)
    on_result(value, error)


def _error_of(exc: BaseException) -> Faulted | Refused:
    """The error for ``on_result``, without its traceback: a stored outcome would keep the frames alive."""
    if isinstance(exc, Faulted | Refused):
        exc.__traceback__ = exc.__cause__ = exc.__context__ = None
        return exc
    error = Faulted("internal", exception_text(exc))
    error.trace = "".join(traceback.format_exception(exc))
    return error


def _ignore(_value: Any, _error: Faulted | Refused | None) -> None:
    """Callback of a run whose result is delivered."""


class Group:
    """Runs that are stopped together, such as those of one episode. ``running`` counts them.

    It has no references to them, so that an idle session is small; ``stop`` searches all runs.
    """

    __slots__ = ("_runs", "empty", "running")

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self.running = 0
        self.empty: asyncio.Event | None = None

    async def stop(self, reason: Faulted) -> None:
        """Stop all, and wait for their results, which takes a short time at most."""
        if self.running:
            self._runs.stop_group(self, reason)
        if self.running:
            self.empty = asyncio.Event()
            await self.empty.wait()


class Runs:
    """All runs of one event loop, with one timer for time limits and one for slow runs.

    A run that took longer than ``slow_after_s`` calls its ``progress``.
    """

    def __init__(self, *, slow_after_s: float = 0.02) -> None:
        self._loop = asyncio.get_running_loop()
        self.quick: dict[Run, None] = {}  # in the order in which they began
        self.slow: dict[Run, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._slow_tick_s = max(slow_after_s / _SLOW_TICKS, _SHORTEST_TICK_S)
        self._slow_timer: asyncio.TimerHandle | None = None
        self._ticks = 0
        self.now = self._loop.time
        self.stuck = 0

    def __len__(self) -> int:
        return len(self.quick) + len(self.slow)

    def start(
        self,
        body: Callable[[Run], Coroutine[Any, Any, Any]],
        on_result: OnResult,
        *,
        limit_s: float,
        what: str,
        group: Group | None = None,
        progress: Progress | None = None,
    ) -> Run:
        """Start ``body(run)`` as a task. ``what`` names it in the error when the limit is reached."""
        run = Run(self, group, on_result, limit_s, what, progress, self._ticks)
        if group is not None:
            group.running += 1
        self.quick[run] = None
        run._task = self._loop.create_task(run._main(body(run)))
        if self._timer is None:
            self._timer = self._loop.call_later(_TICK_S, self._tick)
        if self._slow_timer is None:
            self._slow_timer = self._loop.call_later(self._slow_tick_s, self._tick_slow)
        return run

    def stop_group(self, group: Group, reason: Faulted) -> None:
        """Stop the runs of the group."""
        for run in [each for each in (*self.quick, *self.slow) if each._group is group]:
            run.stop(reason)

    async def run(self, body: Callable[[Run], Coroutine[Any, Any, Any]], *, limit_s: float, what: str) -> Any:
        """Start ``body`` and wait for its value. Raises Faulted or Refused. Cancelling stops the run."""
        future: asyncio.Future[Any] = self._loop.create_future()

        run = self.start(body, settle(future), limit_s=limit_s, what=what)
        try:
            return await future
        except asyncio.CancelledError:
            run.stop(Faulted("cancelled", f"{what} was cancelled"))
            raise

    def _tick(self) -> None:
        self._timer = None
        if not len(self):
            return
        now = self.now()
        for run in [*self.quick, *self.slow]:
            run._check(now)
        self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick_slow(self) -> None:
        self._slow_timer = None
        self._ticks += 1
        last = self._ticks - _SLOW_TICKS
        slow: list[Run] = []
        for run in self.quick:
            if run._began >= last:
                break
            slow.append(run)
        for run in slow:
            del self.quick[run]
            self.slow[run] = None
            if run._progress is not None:
                run._progress(b"")
        if self.quick:
            self._slow_timer = self._loop.call_later(self._slow_tick_s, self._tick_slow)

    def close(self) -> None:
        """Stop the timers. Owners stop remaining runs."""
        for timer in (self._timer, self._slow_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._slow_timer = None
