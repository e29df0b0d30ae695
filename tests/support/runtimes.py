"""Runtimes and sessions for tests of the Runtime and Handle contract."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from orsay.errors import Faulted, Refused
from orsay.runtimes.base import Handle, OpenSession, Operation, Runtime, Stop
from orsay.runtimes.docker.engine import Engine
from orsay.runtimes.execution.episode import Limits
from orsay.runtimes.loader import load
from orsay.runtimes.local import LocalRuntime
from orsay.runtimes.outcome import Outcome
from orsay.runtimes.process.frames import WorkerConfig
from orsay.runtimes.process.pool import ProcessRuntime
from orsay.runtimes.remote.runtime import RemoteRuntime
from orsay.runtimes.router import Member, RouterRuntime
from orsay_protocol.faults import FaultClass
from orsay_protocol.sse import Decoder

from ..docker.stand import SHORT, own_server, running, shares_files, worlds
from ..engine import skip_without_engine
from ..system.serving import server
from .worlds import TARGETS

__all__ = [
    "RUNTIMES",
    "Log",
    "Player",
    "Running",
    "is_ours",
    "local_runtime",
    "open_session",
    "process_runtime",
    "running_runtime",
    "until",
]

WAIT_S = 15.0
MAX_RESULT = 1024 * 1024


async def until(condition: Callable[[], Any], *, timeout_s: float = WAIT_S) -> None:
    """Wait until ``condition`` holds; for what happens in another process, where no event can be awaited."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


def process_runtime(
    workers: int = 1,
    *,
    targets: list[str] = TARGETS,
    stall_s: float = 0.5,
    call_limit_s: float = 20.0,
    setup_limit_s: float = 20.0,
    teardown_limit_s: float = 2.0,
    memory_limit_bytes: int | None = None,
    session_limit: int | None = None,
    threads: int = 300,
    sessions_per_worker: int | None = None,
    max_workers: int = 64,
) -> ProcessRuntime:
    config = WorkerConfig(
        targets=targets,
        sys_path=list(sys.path),
        argv=[],
        call_time_limit_s=call_limit_s,
        setup_time_limit_s=setup_limit_s,
        teardown_time_limit_s=teardown_limit_s,
        max_result_bytes=MAX_RESULT,
        threads=threads,
    )
    return ProcessRuntime(
        config,
        workers=workers,
        start_limit_s=60,
        stall_s=stall_s,
        memory_limit_bytes=memory_limit_bytes,
        session_limit=session_limit,
        sessions_per_worker=sessions_per_worker,
        max_workers=max_workers,
    )


@asynccontextmanager
async def started(runtime: Runtime) -> AsyncIterator[Runtime]:
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()


def local_runtime(targets: list[str], threads: int = 300) -> LocalRuntime:
    limits = Limits(
        call_time_limit_s=20.0,
        setup_time_limit_s=20.0,
        teardown_time_limit_s=2.0,
        max_result_bytes=MAX_RESULT,
    )
    classes = [cls for target in targets for cls in load(target)]
    return LocalRuntime(classes, limits, threads=threads)


def _local(targets: list[str], threads: int) -> AbstractAsyncContextManager[Runtime]:
    return started(local_runtime(targets, threads))


def _process(targets: list[str], threads: int) -> AbstractAsyncContextManager[Runtime]:
    return started(process_runtime(targets=targets, threads=threads))


def _mixed(targets: list[str], threads: int) -> AbstractAsyncContextManager[Runtime]:
    members = [Member("one", process_runtime(targets=targets[:2], threads=threads))]
    if targets[2:]:
        members.append(Member("two", local_runtime(targets[2:], threads)))
    return started(RouterRuntime(members))


@asynccontextmanager
async def _remote(targets: list[str], threads: int) -> AsyncIterator[Runtime]:
    behind = server(
        *targets,
        workers=1,
        call_time_limit_s=20,
        setup_time_limit_s=20,
        teardown_time_limit_s=2,
        max_result_bytes=MAX_RESULT,
        threads_per_worker=threads,
        worker_stall_s=0.5,
    )
    with ExitStack() as stack:
        process = await asyncio.to_thread(stack.enter_context, behind)
        async with started(RemoteRuntime(process.url)) as runtime:
            yield runtime


@asynccontextmanager
async def _docker(targets: list[str], threads: int) -> AsyncIterator[Runtime]:
    skip_without_engine()
    assert targets is TARGETS, "the image holds these and no others"
    options = worlds(variables={**SHORT, "ORSAY_THREADS_PER_WORKER": str(threads)}, **shares_files())
    async with await Engine.connect() as engine, own_server(engine) as own, running(options, own) as runtime:
        yield runtime


RUNTIMES: dict[str, Callable[[list[str], int], AbstractAsyncContextManager[Runtime]]] = {
    "local": _local,
    "process": _process,
    "mixed": _mixed,
    "remote": _remote,
    "docker": _docker,
}
"""How each runtime is started, with short limits: environments by target, threads for author code."""


@asynccontextmanager
async def running_runtime(
    name: str, *, targets: list[str] = TARGETS, threads: int = 300
) -> AsyncIterator[Runtime]:
    """The runtime of that name, with short limits."""
    async with RUNTIMES[name](targets, threads) as runtime:
        yield runtime


def is_ours(runtime: Runtime) -> bool:
    """Whether author code runs in this server: another one sends no traceback, and hears later."""
    return isinstance(runtime, LocalRuntime | ProcessRuntime | RouterRuntime)


class Log:
    """What author code has noted, line by line; also gates that it may wait for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "log"

    @property
    def lines(self) -> list[str]:
        return self.path.read_text().split("\n")[:-1] if self.path.exists() else []

    def count(self, line: str) -> int:
        return self.lines.count(line)

    async def has(self, line: str, times: int = 1) -> None:
        await until(lambda: self.count(line) >= times)

    def gate(self, name: str) -> str:
        return str(self._folder / f"gate-{name}")

    def open(self, name: str) -> None:
        Path(self.gate(name)).touch()


class Running:
    """An operation under way."""

    def __init__(self) -> None:
        self.answers: list[tuple[Any, Faulted | Refused | None]] = []
        self.stop: Stop
        self._ended = asyncio.Event()

    def done(self, value: Any, error: Faulted | Refused | None) -> None:
        self.answers.append((value, error))
        self._ended.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def value(self) -> Any:
        async with asyncio.timeout(WAIT_S):
            await self._ended.wait()
        assert len(self.answers) == 1, "answered more than once"
        value, error = self.answers[0]
        if error is not None:
            raise error
        return value

    async def fault(self) -> Faulted:
        try:
            value = await self.value()
        except Faulted as fault:
            return fault
        raise AssertionError(f"no fault but {repr(value)[:300]}")

    async def result(self) -> Any:
        """JSON of the answer; the stream events are put together where there are any."""
        value = await self.value()
        if not isinstance(value, Outcome):
            return json.loads(value)
        events = Decoder().feed(value.wire)
        assert [event.event for event in events] == ["chunk"] * (len(events) - 1) + ["end"]
        return json.loads("".join(event.data for event in events))

    async def text(self) -> str:
        """Text of the first block of a tool's output."""
        text: str = (await self.result())["output"]["blocks"][0]["text"]
        return text

    async def reason(self) -> str:
        """Why the call was refused."""
        result = await self.result()
        assert result["ok"] is False
        return str(result["reason"])


class Player:
    """One session, as the server's Session holds it; it is the Listener too."""

    def __init__(self) -> None:
        self.handle: Handle
        self.setups: list[Faulted | Refused | None] = []
        self.losses: list[tuple[FaultClass, str]] = []
        self._changed = asyncio.Event()

    def setup_ended(self, error: Faulted | Refused | None) -> None:
        self.setups.append(error)
        self._changed.set()

    def lost(self, fault: FaultClass, reason: str) -> None:
        self.losses.append((fault, reason))
        self._changed.set()

    async def ready(self) -> Faulted | Refused | None:
        """How setup ended."""
        await until(lambda: self.setups)
        assert len(self.setups) == 1
        return self.setups[0]

    async def is_lost(self) -> tuple[FaultClass, str]:
        await until(lambda: self.losses)
        assert len(self.losses) == 1
        return self.losses[0]

    def start(self, operation: Operation, body: bytes = b"", limit_s: float = 20.0) -> Running:
        running = Running()
        running.stop = self.handle.start(operation, body, running.done, limit_s=limit_s)
        return running

    def call(self, name: str, *, limit_s: float = 20.0, **arguments: Any) -> Running:
        body = json.dumps({"name": name, "input": arguments}).encode()
        return self.start("call", body, limit_s)

    def score(self, candidates: int) -> Running:
        message = {"role": "assistant", "blocks": [{"type": "text", "text": "hi"}]}
        body = {"candidates": [{"messages": [message]} for _ in range(candidates)]}
        return self.start("score_group", json.dumps(body).encode())

    async def close(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self.handle.close()


async def open_session(
    runtime: Runtime,
    key: str = "world",
    *,
    ready: bool = True,
    secrets: dict[str, str] | None = None,
    **spec: Any,
) -> Player:
    """A session on a task of that content; with ``ready`` after its setup."""
    player = Player()
    request = OpenSession(key=key, task_spec=spec, secrets=secrets or {})
    player.handle = await runtime.open(request, player)
    if ready:
        error = await player.ready()
        if error is not None:
            raise error
    return player
