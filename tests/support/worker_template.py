"""Workers of servers under test, forked where their imports are done.

That takes a tenth of the CPU time of a fresh process. A *template* is a single-threaded child of the server
that has imported what workers import. It forks a worker as a grandchild, whose parent ends at once; the
server is the subreaper for that moment, and so becomes the worker's parent, as it is of a fresh process.
Hashes have the template's seed: a worker that is to have another one is a fresh process, as ever. So are
all workers where the system is not Linux, which alone knows subreapers and process descriptors.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import gc
import importlib
import io
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orsay.runtimes.process.worker_connection import WORKER_MODULE

from tests.support.process_template import fork_for, fork_from

__all__ = ["IMPORTED_BY_WORKERS", "SEED", "fork_workers_here", "is_template", "split_off"]

_NAME = "template"
_READY = b"ready"
SEED = "0"
"""Of hashes: the default of servers."""
IMPORTED_BY_WORKERS = (
    "orsay.runtimes.execution.event_loop",
    "orsay.runtimes.execution.host",
    "orsay.runtimes.execution.output_guard",
    "orsay.runtimes.loader",
    "orsay.runtimes.process.frames",
    "uvloop",
)


class _Template:
    """The template process of this process; ends with it."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()

    def fork(self, sock: int, stderr: int, env: Mapping[str, str]) -> int:
        """Process id of a worker on that socket, a child of this process."""
        request = {
            "cwd": os.getcwd(),
            "env": dict(env),
            "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
        with self._lock:
            return fork_from(self._control, request, [sock, stderr])


class _Worker:
    """A forked worker, with the part of ``asyncio.subprocess.Process`` that servers use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._reap)

    def _reap(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _fork_workers(template: _Template) -> None:
    """From now on, this process starts its workers from the template."""
    execute = asyncio.create_subprocess_exec

    async def start(program: str, *arguments: str, **options: Any) -> Any:
        env = options.get("env") or {}
        if arguments[:2] == ("-m", WORKER_MODULE) and env.get("PYTHONHASHSEED") == SEED:
            return _Worker(template.fork(int(arguments[2]), options["stdout"], env))
        return await execute(program, *arguments, **options)

    asyncio.create_subprocess_exec = start  # type: ignore[assignment]  # for workers, a part of a process


def split_off() -> None:
    """Make a fork of this process, which has to be single-threaded, the template of its workers."""
    if sys.platform != "linux":
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        _serve(os.dup2(theirs.fileno(), 3))
    theirs.close()
    ours.recv(64)
    _fork_workers(_Template(ours))


def is_template(pid: int) -> bool:
    """Whether that process forks workers."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == _NAME
    except (FileNotFoundError, ProcessLookupError):
        return False


@functools.cache
def fork_workers_here() -> None:
    """From now on, this process starts its workers from a template, a fresh process: it may have threads."""
    if sys.platform != "linux":
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.worker_template", str(theirs.fileno())],
            env={**os.environ, "PYTHONHASHSEED": SEED},
            pass_fds=[theirs.fileno()],
        )
    if ours.recv(64) != _READY:
        raise RuntimeError("the template of workers did not start")
    atexit.register(process.wait, 20)
    atexit.register(ours.close)
    _fork_workers(_Template(ours))


# In the template


def _serve(descriptor: int) -> None:
    """Fork whenever asked to, until the parent has ended. Never returns."""
    os.setsid()  # signals for the group of the parent are none of its business
    _rename(_NAME)
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(nothing, each)
    os.closerange(descriptor + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    control = socket.socket(fileno=descriptor)
    control.send(_READY)
    fork_for(control, _work)


def _work(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Become the worker, as a fresh process would."""
    sock, stderr = descriptors
    os.setsid()
    _rename("python")
    for each in (1, 2):
        os.dup2(stderr, each)
    os.close(stderr)
    os.chdir(request["cwd"])
    resource.setrlimit(resource.RLIMIT_NOFILE, request["files"])
    os.environ.clear()
    os.environ.update(request["env"])
    _open_streams(unbuffered=bool(request["env"].get("PYTHONUNBUFFERED")))
    sys.argv = [WORKER_MODULE, str(sock)]
    try:
        runpy.run_module(WORKER_MODULE, run_name="__main__", alter_sys=True)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _open_streams(*, unbuffered: bool) -> None:
    """As the interpreter does: the old ones remember what kind of files they were on."""
    out, err = (
        io.TextIOWrapper(
            open(number, "wb", closefd=False),  # noqa: SIM115 - it lives as long as the process
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=bool(old.line_buffering),
        )
        for number, old in ((1, sys.stdout), (2, sys.stderr))
    )
    for name, stream in (("stdout", out), ("stderr", err)):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if unbuffered:
        out.reconfigure(write_through=True)


def _rename(name: str) -> None:
    Path("/proc/self/comm").write_text(name)


if __name__ == "__main__":
    for _name in IMPORTED_BY_WORKERS:
        importlib.import_module(_name)
    gc.collect()
    gc.freeze()
    _serve(int(sys.argv[1]))
