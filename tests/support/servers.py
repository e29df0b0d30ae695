"""Server processes: started, found by the URL they print, stopped by signal.

``orsay`` itself is forked where its imports are done: their four seconds of CPU are paid once in a run.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeAlias

from .forkserver import Forked, ForkServer
from .worker_template import IMPORTED_BY_WORKERS, SEED

__all__ = ["ROOT", "WITH_OPENENV", "Process", "RunningServer", "orsay", "orsay_programs", "running", "start"]

ROOT = Path(__file__).parents[2]
WITH_OPENENV = ("tests.support.openenv_without_page",)
"""Imports, two seconds of CPU, that servers of OpenEnv share with ours that host one."""
Process: TypeAlias = "Forked | subprocess.Popen[bytes]"

_URL = re.compile(r"http://[\w.\-]+:\d+")
_START_LIMIT_S = 90.0
_STOP_LIMIT_S = 20.0


@functools.cache
def orsay_programs(*imported: str) -> ForkServer:
    """Has imported what verbs, servers and workers import; workers of a server are forks of its template.

    What is neither listed here nor ``imported`` is imported again by each program that needs it.
    """
    optional = {
        "mcp": "orsay.protocols.mcp.mount",
        "openreward": "openreward.toolsets",  # imported for the first toolset that a client names
        "websockets": "orsay.protocols.openenv.mount",
    }
    server = ForkServer(
        *(module for package, module in optional.items() if importlib.util.find_spec(package)),
        "orsay.cli.config",
        "orsay.cli.play",
        "orsay.cli.serve",
        "orsay.console.operations",
        "orsay.http.fastapi_app",
        "orsay.journal.key_names",
        "orsay.journal.read.models",
        "orsay.journal.write.writer",
        "orsay.serving.server",
        "orsay.sessions.recovery",
        "aiohttp",
        "alembic.autogenerate",
        "alembic.command",
        "alembic.config",
        "fastapi.openapi.utils",
        "fastapi.staticfiles",
        "pydantic.v1",  # imported by FastAPI for its first route
        "pygments.formatters",
        "sqlalchemy.dialects.sqlite",
        "uvicorn.lifespan.off",
        "uvloop",
        *IMPORTED_BY_WORKERS,
        *imported,
        teardown=False,
        before="tests.support.worker_template:split_off",
        hash_seed=SEED,
    )
    atexit.register(server.close)
    return server


def orsay(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    input: str | None = None,
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """A verb of the command line to its end."""
    command = ["-m", "orsay", *arguments]
    return orsay_programs().run(command, timeout=timeout, cwd=cwd, env=env, input=input)


def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    stdout: int,
    stderr: int,
    cwd: Path = ROOT,
    start_new_session: bool = False,
    preexec_fn: Callable[[], object] | None = None,
    imported: Sequence[str] = (),
) -> Process:
    """Run a program; one of ours is forked, unless something has to be done between fork and exec.

    ``imported``: modules to import before the fork, once for all programs.
    """
    if list(command[:3]) == [sys.executable, "-m", "orsay"] and preexec_fn is None:
        return orsay_programs(*imported).start(
            command[1:], cwd=cwd, env=env, stdout=stdout, stderr=stderr, start_new_session=start_new_session
        )
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdout=stdout,
        stderr=stderr,
        start_new_session=start_new_session,
        preexec_fn=preexec_fn,
    )


@dataclass
class RunningServer:
    """A server process that answers at ``url``; ``output`` is what it printed so far."""

    url: str
    output: list[str] = field(default_factory=list)


@contextmanager
def running(command: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[RunningServer]:
    """A server process, which lives as long as the block. Raises RuntimeError when it prints no URL."""
    ours, theirs = os.pipe()
    stream = os.fdopen(ours, encoding="utf-8", errors="replace")
    try:
        variables = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        process = start(command, env=variables, stdout=theirs, stderr=theirs)
    finally:
        os.close(theirs)
    output: list[str] = []
    urls: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(stream, output, urls), daemon=True)
    reader.start()
    try:
        try:
            url = urls.get(timeout=_START_LIMIT_S)
        except queue.Empty:
            url = None
        if url is None:
            raise RuntimeError(f"{' '.join(command)} did not start:\n{''.join(output)}")
        yield RunningServer(url, output)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(_STOP_LIMIT_S)
        stream.close()


def _read(stream: IO[str], output: list[str], urls: queue.Queue[str | None]) -> None:
    for line in stream:
        output.append(line)
        if found := _URL.search(line):
            urls.put(found.group())
    urls.put(None)
