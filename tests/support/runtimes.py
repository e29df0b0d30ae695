"""Runtimes for tests of the Runtime and Handle contract, each started with short limits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager

from orsay.runtimes.base import Runtime
from orsay.runtimes.docker.engine import Engine
from orsay.runtimes.execution.episode import Limits
from orsay.runtimes.loader import load
from orsay.runtimes.local import LocalRuntime
from orsay.runtimes.process.frames import WorkerConfig
from orsay.runtimes.process.pool import ProcessRuntime
from orsay.runtimes.remote.runtime import RemoteRuntime
from orsay.runtimes.router import Member, RouterRuntime

from .docker_runtime import SHORT, own_server, running, scripted_options, shares_files
from .engine import skip_without_engine
from .environments import TARGETS
from .server_process import server
from .tiers import need
from .worker_template import fork_workers_here

__all__ = [
    "MAX_RESULT",
    "RUNTIMES",
    "is_ours",
    "local_runtime",
    "process_runtime",
    "running_runtime",
    "started",
]

MAX_RESULT = 1024 * 1024


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
    need("process", "makes a process runtime")
    fork_workers_here()
    config = WorkerConfig(
        targets=targets,
        sys_path=list(sys.path),
        argv=[],
        call_time_limit_s=call_limit_s,
        setup_time_limit_s=setup_limit_s,
        teardown_time_limit_s=teardown_limit_s,
        max_result_bytes=MAX_RESULT,
        threads=threads,
        hash_seed=0,
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
    options = scripted_options(
        variables={**SHORT, "ORSAY_THREADS_PER_WORKER": str(threads)}, **shares_files()
    )
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
    """Whether author code runs in this server: another one sends no traceback, and is notified later."""
    return isinstance(runtime, LocalRuntime | ProcessRuntime | RouterRuntime)
