"""Servers with and without a proxy in front, and their loads, for the gateway benchmark."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .loops import Result
from .servers import SERVERS, RunningServer, ServerSpec
from .wire import Target

__all__ = [
    "LAYOUTS",
    "LOADS",
    "Layout",
    "Load",
    "Setup",
    "result_of",
    "run_load",
    "running",
    "start_load",
]

HERE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Layout:
    """A server with a proxy in front: ``none``, ``orsay`` or ``haproxy``."""

    name: str
    server: str
    front: str

    @property
    def direct(self) -> str:
        """The layout of the same server with nothing in front."""
        return f"{self.server} alone"


LAYOUTS = tuple(
    Layout(f"{server} alone" if front == "none" else f"{server} behind {front}", server, front)
    for server, front in (
        ("orsay-process", "none"),
        ("orsay-process", "orsay"),
        ("orsay-process", "haproxy"),
        ("openreward", "none"),
        ("openreward", "orsay"),
    )
)


@dataclass(frozen=True, slots=True)
class Load:
    """A mode of ``ors_load``, or ``stream``: the time to the first event of a call of one second."""

    name: str
    arguments: tuple[str, ...] = ()


LOADS = (
    Load("rate", ("--mode", "rate", "--rate", "200")),
    Load("calls", ("--mode", "calls")),
    Load("episodes", ("--mode", "episodes")),
    Load("stream"),
)


@dataclass(frozen=True, slots=True)
class Setup:
    """Cores and paths of the processes."""

    peers: Path
    logs: Path
    server_core: int | None
    generator_core: int | None


@contextlib.contextmanager
def running(layout: Layout, setup: Setup) -> Iterator[tuple[RunningServer, RunningServer]]:
    """The layout, ready: the server that clients reach, and the one that holds the sessions."""
    with ExitStack() as stack:
        server = stack.enter_context(
            RunningServer(SERVERS[layout.server], peers=setup.peers, logs=setup.logs, core=setup.server_core)
        )
        server.wait_until("/ready" if server.spec.ours else "/health")
        spec = _front(layout, server.url)
        if spec is None:
            yield server, server
            return
        front = stack.enter_context(
            RunningServer(spec, peers=setup.peers, logs=setup.logs, core=setup.server_core)
        )
        front.wait_until("/ready" if spec.ours else "/health")
        yield front, server


def _front(layout: Layout, url: str) -> ServerSpec | None:
    match layout.front:
        case "orsay":
            command = ("-m", "orsay", "serve", "--runtime", "remote", url, "--port", "PORT")
            return ServerSpec("orsay-gateway", "ors", command)
        case "haproxy":
            return ServerSpec("haproxy", "ors", ("haproxy_front.py", url, "PORT"))
    return None


def run_load(load: Load, front: RunningServer, setup: Setup, *, seconds: float) -> Result:
    """One run. Raises RuntimeError with the end of the generator's output."""
    if load.name == "stream":
        return asyncio.run(_stream(front.url))
    with start_load(load, front, setup, seconds=seconds) as generator, ExitStack() as stack:
        stack.callback(generator.kill)  # after Ctrl-C too
        with contextlib.suppress(subprocess.TimeoutExpired):
            generator.wait(120 + 2 * seconds)
            return result_of(generator)
        raise RuntimeError("the generator did not end")


def start_load(
    load: Load, front: RunningServer, setup: Setup, *, seconds: float, warmup: float = 1.0
) -> subprocess.Popen[str]:
    """The generator of a load, running."""
    arguments = ["--url", front.url, "--server-pid", str(front.pid), *load.arguments]
    arguments += ["--seconds", str(seconds), "--warmup", str(warmup)]
    if setup.generator_core is not None:
        arguments += ["--core", str(setup.generator_core)]
    return subprocess.Popen(
        [sys.executable, "-m", "orsay_bench.ors_load", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        process_group=0,  # where it is paused: a group with paused processes is hung up when its shell ends
    )


def result_of(generator: subprocess.Popen[str]) -> Result:
    """Result of a generator that has ended. Raises RuntimeError with the end of its output."""
    said, complained = generator.communicate()
    if generator.returncode:
        raise RuntimeError((complained or said).strip()[-600:] or f"it ended with {generator.returncode}")
    result: Result = json.loads(said.strip().splitlines()[-1])
    return result


async def _stream(url: str, tries: int = 5) -> Result:
    """From sending a call of one second to its first event, and to its end; medians, in milliseconds."""
    target = Target(url)
    first: list[float] = []
    last: list[float] = []
    for _ in range(tries):
        sid = uuid.uuid4().hex
        create = json.dumps({"env_name": "echoenvironment", "split": "train", "index": 0}).encode()
        await _until(target, target.request("POST", "/create", sid, create), b"sid")
        body = json.dumps({"name": "slow", "input": {"seconds": 1.0}}).encode()
        times = await _until(
            target, target.request("POST", "/echoenvironment/call", sid, body), b"event: end"
        )
        first.append(times[0])
        last.append(times[1])
        await _until(target, target.request("POST", "/delete", sid), b"sid")
    return {
        "first_ms": round(statistics.median(first) * 1e3, 1),
        "last_ms": round(statistics.median(last) * 1e3, 1),
    }


async def _until(target: Target, request: bytes, sign: bytes) -> tuple[float, float]:
    """Seconds until the first byte of a body, and until ``sign``."""
    reader, writer = await asyncio.open_connection(target.host, target.port)
    try:
        started = time.perf_counter()
        writer.write(request)
        seen = b""
        first = 0.0
        async with asyncio.timeout(30):
            while sign not in seen:
                data = await reader.read(65536)
                if not data:
                    raise RuntimeError(f"the answer ended early: {seen[-300:]!r}")
                seen += data
                if not first and len(seen.partition(b"\r\n\r\n")[2]) > 0:
                    first = time.perf_counter() - started
        return first, time.perf_counter() - started
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
