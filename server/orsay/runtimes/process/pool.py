"""The ``process`` runtime: a pool of worker processes, each session pinned to one.

Workers are started ahead of need, replaced when they die, avoided while they are blocked, and recycled by
memory, by number of sessions and by stuck calls. A blocked worker with calls past their limit is killed. With
``sessions_per_worker`` the pool grows with the number of sessions; 1 gives each session its own process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence

from ...errors import Faulted, LoadError, Overloaded, Refused, ShuttingDown, Starting
from ...logs import get_logger
from ..base import (
    ClosesByCallback,
    EnvironmentInfo,
    Gauge,
    Listener,
    OnResult,
    OpensByCallback,
    OpenSession,
    Operation,
    Progress,
    Stop,
    TaskQuery,
    settle,
)
from .frames import Kind, WorkerConfig
from .worker_connection import WorkerConnection

__all__ = ["ProcessHandle", "ProcessRuntime"]

_log = get_logger(__name__)
_WATCH_S = 0.25
_BACKOFF_S = (0.0, 0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
_LIMIT_MARGIN_S = 2.0
_to_json = OpenSession.__pydantic_serializer__.to_json


class ProcessRuntime(OpensByCallback):
    """Runtime for the environments of ``config.targets``, in ``workers`` processes."""

    def __init__(
        self,
        config: WorkerConfig,
        *,
        workers: int,
        start_limit_s: float,
        stall_s: float,
        memory_limit_bytes: int | None = None,
        session_limit: int | None = None,
        sessions_per_worker: int | None = None,
        max_workers: int = 64,
    ) -> None:
        self._config = config
        self._size = workers
        self._start_limit_s = start_limit_s
        self._stall_s = stall_s
        self._memory_limit = memory_limit_bytes
        self._session_limit = session_limit
        self._sessions_per_worker = sessions_per_worker
        self._ceiling = 2 * workers if sessions_per_worker is None else max(workers, max_workers)
        self.environments: Sequence[EnvironmentInfo] = ()
        self.pending: Sequence[str] = ()
        self._workers: list[WorkerConnection] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._failures = 0
        self._started_count = self._lost_count = self._failed_count = 0
        self._stopping = False
        self._watch: asyncio.Task[None] | None = None

    # life

    async def start(self) -> None:
        for _ in range(self._size):
            self._launch()
        first = list(self._starting)
        try:
            await asyncio.gather(*first)
        except BaseException:
            await self.stop()
            raise
        self._watch = asyncio.get_running_loop().create_task(self._watch_workers())

    def _launch(self, *, delay_s: float = 0.0) -> None:
        task = asyncio.get_running_loop().create_task(self._start_worker(delay_s))
        self._starting.add(task)
        task.add_done_callback(self._launched)

    def _launched(self, task: asyncio.Task[None]) -> None:
        self._starting.discard(task)
        if task.cancelled() or self._stopping:
            return
        error = task.exception()
        if error is None:
            self._failures = 0
        elif self._watch is not None and self._size:  # the first start raises its error
            self._failures += 1
            self._failed_count += 1
            _log.error("worker_start_failed", error=str(error), failures=self._failures)
            self._launch(delay_s=_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])

    async def _start_worker(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        worker = await WorkerConnection.launch(self._config, self._start_limit_s, self._lost)
        if self._stopping:
            await worker.end()
            return
        self.environments = worker.environments
        self._workers.append(worker)
        self._started_count += 1
        self._notify()
        _log.debug("worker_ready", worker=worker.pid)

    def _lost(self, worker: WorkerConnection, reason: str) -> None:
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self._notify()
        if self._stopping or worker.retiring:
            return
        self._lost_count += 1
        _log.warning("worker_lost", worker=worker.pid, reason=reason, sessions=worker.sessions)
        self._balance()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def stop(self) -> None:
        self._stopping = True
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        for task in self._starting:
            if not task.cancelling():  # else it ends its process already, which must not be interrupted
                task.cancel()
        await asyncio.gather(*self._starting, *self._ending, return_exceptions=True)
        workers, self._workers = self._workers, []
        await asyncio.gather(*(worker.end() for worker in workers))

    async def reload(self) -> None:
        """Start workers with the current code; running sessions stay in the old workers.

        If the new code does not load, the old workers stay.
        """
        old = list(self._workers)
        launches = [
            WorkerConnection.launch(self._config, self._start_limit_s, self._lost) for _ in range(self._size)
        ]
        launched = await asyncio.gather(*launches, return_exceptions=True)
        fresh = [worker for worker in launched if isinstance(worker, WorkerConnection)]
        failed = next((error for error in launched if isinstance(error, BaseException)), None)
        if failed is not None:
            await asyncio.gather(*(worker.end() for worker in fresh))
            if not isinstance(failed, LoadError):
                raise failed
            _log.error("reload_failed", error=str(failed))
            return
        self._workers.extend(fresh)
        self._started_count += len(fresh)
        self.environments = fresh[0].environments
        for worker in old:
            self._retire(worker)
        self._notify()
        _log.info("reloaded")

    def retire(self) -> None:
        """Start no more workers, and end each one after its last session."""
        self._size = 0
        for worker in self._workers:
            if not worker.retiring:
                self._retire(worker)

    # metrics

    def gauges(self) -> Iterator[Gauge]:
        """Metrics of worker processes: number by state, starts, losses, memory and stuck calls."""
        states = Counter(_state(worker, self._stall_s) for worker in self._workers)
        states["starting"] = len(self._starting)
        for state in ("ready", "blocked", "retiring", "starting"):
            yield Gauge("workers", states[state], {"state": state})
        yield Gauge("workers_started", self._started_count)
        yield Gauge("workers_lost", self._lost_count)
        yield Gauge("worker_start_failures", self._failed_count)
        yield Gauge("worker_memory_bytes", sum(worker.rss_bytes for worker in self._workers))
        yield Gauge("worker_stuck_calls", sum(worker.stuck for worker in self._workers))

    # watching

    async def _watch_workers(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            for worker in list(self._workers):
                worker.heartbeat()
                if worker.silent_s() > self._stall_s:
                    if not worker.blocked:
                        worker.blocked = True
                        _log.warning(
                            "worker_blocked", worker=worker.pid, silent_s=round(worker.silent_s(), 1)
                        )
                        worker.show_stack()
                    worker.kill_if_overdue()
                elif not worker.retiring and self._worn(worker):
                    self._retire(worker)
                if worker.retiring and worker.sessions == 0 and worker.idle:
                    self._workers.remove(worker)
                    self._spawn_end(worker)
            self._balance()

    def _worn(self, worker: WorkerConnection) -> bool:
        return (
            (self._memory_limit is not None and worker.rss_bytes > self._memory_limit)
            or not self._is_young(worker)
            or worker.stuck >= 8
        )

    def _retire(self, worker: WorkerConnection) -> None:
        worker.retiring = True
        _log.info(
            "worker_retires",
            worker=worker.pid,
            sessions=worker.sessions,
            rss_bytes=worker.rss_bytes,
            stuck=worker.stuck,
        )

    def _balance(self) -> None:
        """Keep ``workers`` responsive workers with room for sessions, within the ceiling."""
        fit = [worker for worker in self._workers if not (worker.retiring or worker.gone)]
        ready = [
            worker for worker in fit if worker.silent_s() <= self._stall_s and self._takes_sessions(worker)
        ]
        missing = self._size - len(ready) - len(self._starting)
        for _ in range(min(missing, self._ceiling - len(fit) - len(self._starting))):
            self._launch()
        if len(ready) > self._size:
            self._retire(min(ready, key=lambda worker: worker.sessions))

    def _takes_sessions(self, worker: WorkerConnection) -> bool:
        roomy = self._sessions_per_worker is None or worker.sessions < self._sessions_per_worker
        return roomy and self._is_young(worker)

    def _spawn_end(self, worker: WorkerConnection) -> None:
        task = asyncio.get_running_loop().create_task(worker.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    # work

    async def _wait_for_worker(self) -> WorkerConnection:
        """The least loaded worker. Waits for one that is starting, for a bounded time.

        Raises Overloaded, Starting or ShuttingDown.
        """
        try:
            async with asyncio.timeout(self._start_limit_s):
                while True:
                    if self._stopping:
                        raise ShuttingDown("the server is shutting down")
                    worker = self._fittest()
                    if worker is not None:
                        return worker
                    self._balance()
                    if not self._starting:
                        raise Overloaded(
                            f"server at maximum capacity: all {len(self._workers)} worker processes are taken"
                        )
                    await self._changed.wait()
        except TimeoutError:
            raise Starting("no worker process is ready yet") from None

    def _fittest(self, *, for_session: bool = True) -> WorkerConnection | None:
        fit = [
            worker
            for worker in self._workers
            if not (worker.gone or worker.retiring) and (not for_session or self._takes_sessions(worker))
        ]
        if len(fit) < 2:
            return fit[0] if fit else None
        return min(fit, key=lambda worker: _load(worker, self._stall_s))

    def _is_young(self, worker: WorkerConnection) -> bool:
        return self._session_limit is None or worker.opened < self._session_limit

    async def open(self, request: OpenSession, listener: Listener) -> ProcessHandle:
        worker = self._fittest() or await self._wait_for_worker()
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handle = self._open_in(worker, request, listener, settle(opened))
        try:
            await opened
        except asyncio.CancelledError:
            with contextlib.suppress(Faulted, Refused):
                await handle.close()  # the worker may have opened it by now
            raise
        return handle

    def start_open(
        self, request: OpenSession, listener: Listener, on_result: OnResult
    ) -> ProcessHandle | None:
        worker = self._fittest()
        return None if worker is None else self._open_in(worker, request, listener, on_result)

    def _open_in(
        self, worker: WorkerConnection, request: OpenSession, listener: Listener, on_result: OnResult
    ) -> ProcessHandle:
        limit = self._config.setup_time_limit_s
        for info in self.environments:
            if info.key == request.key and info.setup_time_limit_s is not None:
                limit = info.setup_time_limit_s
        number = worker.attach(listener, 2 * limit + _LIMIT_MARGIN_S)
        if not self._is_young(worker):
            self._retire(worker)
        if not self._takes_sessions(worker):
            self._balance()  # so that the next session finds a worker waiting
        handle = ProcessHandle(worker, number, self._config.teardown_time_limit_s)
        handle.open(_to_json(request), limit, listener, on_result)
        return handle

    async def tasks(self, query: TaskQuery) -> bytes:
        worker = self._fittest(for_session=False) or await self._wait_for_worker()
        return await worker.ask(Kind.TASKS, query.model_dump_json().encode(), self._config.setup_time_limit_s)


def _state(worker: WorkerConnection, stall_s: float) -> str:
    if worker.retiring:
        return "retiring"
    return "blocked" if worker.silent_s() > stall_s else "ready"


def _load(worker: WorkerConnection, stall_s: float) -> tuple[bool, int]:
    return worker.silent_s() > stall_s, worker.sessions


_KINDS: dict[Operation, int] = {
    "call": Kind.CALL,
    "prompt": Kind.PROMPT,
    "messages": Kind.MESSAGES,
    "task_tools": Kind.TASK_TOOLS,
    "score_group": Kind.SCORE,
}


class ProcessHandle(ClosesByCallback):
    """A session in a worker process."""

    __slots__ = ("_number", "_open", "_stop_opening", "_teardown_limit_s", "_worker")

    def __init__(self, worker: WorkerConnection, number: int, teardown_limit_s: float) -> None:
        self._worker = worker
        self._number = number
        self._teardown_limit_s = teardown_limit_s
        self._open = True
        self._stop_opening: Stop | None = None

    def open(self, request: bytes, limit_s: float, listener: Listener, on_result: OnResult) -> None:
        """Have the worker open the session; ``on_result`` is not called if the handle is closed meanwhile."""

        def opened(state: bytes | None, error: Faulted | Refused | None) -> None:
            self._stop_opening = None
            if error is not None:  # a turn later: after the listener's ``lost``, if the worker died
                asyncio.get_running_loop().call_soon(self._opening_failed, on_result, error)
            elif self._open:
                if state == b"ready":
                    self._worker.set_up(self._number)
                    listener.setup_ended(None)
                on_result(None, None)

        self._stop_opening = self._worker.start(Kind.OPEN, request, opened, limit_s, session=self._number)

    def _opening_failed(self, on_result: OnResult, error: Faulted | Refused) -> None:
        if self._open:
            self._open = False
            self._worker.detach(self._number)
            on_result(None, error)

    def start(
        self,
        operation: Operation,
        body: bytes,
        on_result: OnResult,
        *,
        limit_s: float,
        progress: Progress | None = None,
    ) -> Stop:
        return self._worker.start(
            _KINDS[operation],
            body,
            on_result,
            limit_s + _LIMIT_MARGIN_S,
            progress,
            session=self._number,
        )

    def start_close(self, on_result: OnResult) -> None:
        first, self._open = self._open, False
        if self._stop_opening is not None:
            self._stop_opening()
        self._worker.mute(self._number)

        def closed(value: bytes | None, error: Faulted | Refused | None) -> None:
            if first:
                self._worker.detach(self._number)
            on_result(value, error)

        limit_s = self._teardown_limit_s + _LIMIT_MARGIN_S
        self._worker.start(Kind.CLOSE, b"", closed, limit_s, session=self._number)

    async def close(self) -> None:
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.start_close(settle(closed))
        await closed
