"""The servers that are compared, and one running server: its start, its readiness and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal

from .machine import on_core
from .peers import python_of
from .processes import ProcessTree, is_running

SCRIPTS = Path(__file__).resolve().parent.parent / "servers"
BASELINE = "openreward"
START_LIMIT_S = 60.0
STOP_LIMIT_S = 10.0


class ServerFailed(Exception):
    """The server did not come up; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """Command of one server; PORT in it is replaced. `peer` names its virtual environment."""

    name: str
    protocol: Literal["ors", "openenv"]
    command: tuple[str, ...]
    peer: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    by_default: bool = True
    journal: bool = False
    """It keeps a journal: a new one in a folder of its own for each start."""

    @property
    def ours(self) -> bool:
        return self.name.startswith("orsay")

    def python(self, peers: Path) -> str:
        return str(python_of(peers, self.peer)) if self.peer else sys.executable


def _serve(target: str, *options: str) -> tuple[str, ...]:
    return ("-m", "orsay", "serve", target, "--host", "127.0.0.1", "--port", "PORT", *options)


def _orsay(runtime: str) -> ServerSpec:
    """Without a journal, like the others; ``benchmarks/journal`` measures its cost."""
    command = _serve("bench_env:EchoEnvironment", "--runtime", runtime, "--workers", "1")
    return ServerSpec(f"orsay-{runtime}", "ors", command, variables={"ORSAY_JOURNAL": "off"})


def _orsay_default(name: str, target: str, **variables: str) -> ServerSpec:
    """The default configuration: with a journal, one worker process for each core: one."""
    return ServerSpec(name, "ors", _serve(target), variables=variables, journal=True)


def _peer(name: str, module: str, *, by_default: bool = True, **variables: str) -> ServerSpec:
    return ServerSpec(
        name,
        "ors",
        ("echo_peer.py", "PORT"),
        name,
        variables={"BENCH_PEER": module, **variables},
        by_default=by_default,
    )


def _openenv(name: str, step: str) -> ServerSpec:
    return ServerSpec(name, "openenv", ("echo_openenv.py", step, "PORT"), "openenv")


SERVERS: dict[str, ServerSpec] = {
    spec.name: spec
    for spec in (
        _orsay_default("orsay", "bench_env:EchoEnvironment"),
        _orsay_default(
            "orsay-openreward",
            "echo_peer:EchoEnvironment",
            BENCH_PEER="openreward.environments",
            OPENREWARD_DISABLE_UPDATE_CHECK="1",
        ),
        _orsay("process"),
        _orsay("local"),
        _peer("openreward", "openreward.environments", OPENREWARD_DISABLE_UPDATE_CHECK="1"),
        _peer(
            "openreward-tuned",
            "openreward.environments",
            by_default=False,
            OPENREWARD_DISABLE_UPDATE_CHECK="1",
            OPENREWARD_LOG_LEVEL="WARNING",
        ),
        _peer("ors-sdk", "ors"),
        _openenv("openenv", "sync"),
        _openenv("openenv-async", "async"),
        ServerSpec("raw-asgi", "ors", ("raw_asgi.py", "PORT"), by_default=False),
    )
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class RunningServer:
    """A server in a process group of its own, pinned to one core; leaving the `with` ends that group."""

    def __init__(self, spec: ServerSpec, *, peers: Path, logs: Path, core: int | None) -> None:
        self.spec = spec
        self.port = free_port()
        self._core = core
        self._command = [
            spec.python(peers),
            *(str(self.port) if part == "PORT" else part for part in spec.command),
        ]
        self._log_path = logs / f"{spec.name}.log"
        self._variables = {**os.environ, "PYTHONPATH": str(SCRIPTS), **spec.variables}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> RunningServer:
        if self.spec.journal:
            self._folder = tempfile.TemporaryDirectory(prefix="journal-")
            self._variables["ORSAY_JOURNAL"] = f"{self._folder.name}/journal.db"
        with on_core(self._core), self._log_path.open("wb") as log:
            self.started = time.perf_counter()
            self._process = subprocess.Popen(
                self._command,
                cwd=SCRIPTS,
                env=self._variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.tree = ProcessTree(self._process.pid)
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, path: str = "/health") -> float:
        """Seconds from its start to the first 200 at this path."""
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
        while time.perf_counter() - self.started < START_LIMIT_S:
            if self._process.poll() is not None:
                raise ServerFailed(f"exited with {self._process.returncode}: {self._log_end()}")
            try:
                with socket.create_connection(("127.0.0.1", self.port), 2) as connection:
                    connection.sendall(request)
                    if connection.recv(64)[9:12] == b"200":
                        return time.perf_counter() - self.started
            except OSError:
                pass  # not listening yet; the loop is bounded
            time.sleep(0.002)
        raise ServerFailed(f"no 200 at {path} within {START_LIMIT_S:.0f} s: {self._log_end()}")

    def strays(self) -> list[int]:
        """Processes of the server that left the core they were given."""
        return [] if self._core is None else self.tree.outside({self._core})

    def _log_end(self) -> str:
        return self._log_path.read_text(errors="replace")[-800:]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        family = self.tree.pids()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):  # then the group is killed below
                self._process.terminate()
                self._process.wait(STOP_LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # the whole group is gone, as it should be
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            wait_for_end(family)
            if self._folder is not None:
                self._folder.cleanup()


def wait_for_end(pids: list[int], limit_s: float = 5.0) -> None:
    """Until killed processes are really gone: what is left of one server must not run beside the next."""
    give_up = time.monotonic() + limit_s
    while any(is_running(pid) for pid in pids) and time.monotonic() < give_up:
        time.sleep(0.005)
