"""Python programs in processes of their own that do not pay for their imports: a fork server.

The idea is that of ``multiprocessing``'s fork server: one process imports what is heavy, does nothing else,
has no threads, and forks when a program is to run. Unlike there, what runs is a whole program, by ``runpy``
and under the name ``__main__``: its arguments, environment, folder, streams and session are its own, and the
interpreter ends as it does for any program. A fork shares the seed of hashes; of the variables that the
interpreter reads when it starts, PYTHONPATH and PYTHONUNBUFFERED are heeded.

The processes of one run of xdist share a fork server: the first that asks starts it, others find it by a
socket file, and it ends with the process that started them all.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import fcntl
import gc
import hashlib
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.network import current_network, enter_network

__all__ = ["ForkServer", "Forked", "to_the_end"]

_MESSAGE_BYTES = 1 << 20
_START_LIMIT_S = 100.0
_END_LIMIT_S = 20.0
ROOT = Path(__file__).parents[2]


class Forked:
    """A program that runs, with the part of ``subprocess.Popen`` that tests use."""

    def __init__(self, control: socket.socket, pid: int) -> None:
        self._control = control
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, once there is one."""
        with_status = self.returncode is None and select.select([self._control], [], [], 0)[0]
        return self._read() if with_status else self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. Raises TimeoutExpired."""
        if self.returncode is None and not select.select([self._control], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self._read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # reaped, and its status is on its way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read(self) -> int:
        if self.returncode is None:
            self.returncode = int(self._control.recv(64) or b"-9")
            self._control.close()
        return self.returncode


class ForkServer:
    """A process that has imported ``modules``; the one that ends it owns it, unless it is shared.

    Without ``teardown`` a program that ends leaves its modules as they are, as ``os._exit`` does after exit
    handlers: to take torch and TRL apart costs half a second of CPU. ``before``, as ``module:function``, is
    called in each program before it runs. Hashes have ``hash_seed``.
    """

    def __init__(
        self, *modules: str, teardown: bool = True, before: str | None = None, hash_seed: str = "random"
    ) -> None:
        self._teardown = teardown
        self._before = before
        self._control, self._process = _find_or_start(modules, hash_seed)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)

    def start(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        stdout: int,
        stderr: int,
        stdin: int | None = None,
        start_new_session: bool = False,
    ) -> Forked:
        """Run what ``python ARGUMENTS`` runs: ``-m MODULE``, ``-c CODE`` or a file, and what follows."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {
            "arguments": list(arguments),
            "cwd": str(cwd),
            "env": dict(os.environ if env is None else env),
            "session": start_new_session,
            "teardown": self._teardown,
            "before": self._before,
            "stdin": stdin is not None,
        }
        with theirs, current_network() as network:
            given = [] if stdin is None else [stdin]
            descriptors = [theirs.fileno(), stdout, stderr, *given, *network]
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
            except (BrokenPipeError, ConnectionResetError):
                code = "" if self._process is None else f", with {self._process.wait(_END_LIMIT_S)}"
                raise RuntimeError(f"the fork server has ended{code}") from None
        if not select.select([ours], [], [], _START_LIMIT_S)[0]:
            ours.close()
            raise TimeoutError(f"nothing was started within {_START_LIMIT_S:.0f} s")
        told = ours.recv(64)
        if not told:
            raise RuntimeError("the program ended before it began")
        return Forked(ours, int(told))

    def run(
        self,
        arguments: Sequence[str],
        *,
        timeout: float,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        input: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """As ``subprocess.run`` with its output captured as text."""
        if input is None:
            return self.run_together([arguments], timeout=timeout, cwd=cwd, envs=[env])[0]
        ours, theirs = os.pipe()
        with os.fdopen(ours, "rb") as stdin:
            with os.fdopen(theirs, "wb") as typed:
                typed.write(input.encode())  # less than a pipe holds
            number = stdin.fileno()
            return self.run_together([arguments], timeout=timeout, cwd=cwd, envs=[env], stdin=number)[0]

    def run_together(
        self,
        programs: Sequence[Sequence[str]],
        *,
        timeout: float,
        cwd: Path = ROOT,
        envs: Sequence[Mapping[str, str] | None],
        stdin: int | None = None,
    ) -> list[subprocess.CompletedProcess[str]]:
        """Programs at the same time; all are killed when one takes too long."""
        deadline = time.monotonic() + timeout
        running: list[tuple[Forked, IO[bytes], IO[bytes]]] = []
        try:
            for arguments, env in zip(programs, envs, strict=True):
                out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
                err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
                started = self.start(
                    arguments, cwd=cwd, env=env, stdout=out.fileno(), stderr=err.fileno(), stdin=stdin
                )
                running.append((started, out, err))
            codes = [each.wait(max(0.0, deadline - time.monotonic())) for each, _, _ in running]
            return [
                subprocess.CompletedProcess(list(arguments), code, _text(out), _text(err))
                for arguments, code, (_, out, err) in zip(programs, codes, running, strict=True)
            ]
        finally:
            for each, out, err in running:
                each.kill()
                each.wait(_END_LIMIT_S)
                out.close()
                err.close()

    def before(self, function: str) -> ForkServer:
        """This server, to run programs in which that function is called before."""
        same = copy.copy(self)
        same._before = function
        return same

    def close(self) -> None:
        """End the server, or leave a shared one; programs that still run go on."""
        self._control.close()
        if self._process is not None:
            self._process.wait(_END_LIMIT_S)


def _find_or_start(
    modules: Sequence[str], hash_seed: str
) -> tuple[socket.socket, subprocess.Popen[bytes] | None]:
    """A connection to a server with these modules, and its process where that belongs to this one alone."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None or not hasattr(os, "pidfd_open"):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = _execute(theirs, modules, hash_seed)
        return ours, process
    name = hashlib.sha256("\n".join([run, hash_seed, *modules]).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"orsay-fork-{name}")
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(str(path))
                listener.listen()
                process = _execute(listener, modules, hash_seed, owner=os.getppid())
                process.returncode = 0  # it outlives this process, which is not to wait for it
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect(str(path))
    return control, None


def _execute(
    sock: socket.socket, modules: Sequence[str], hash_seed: str, *, owner: int = 0
) -> subprocess.Popen[bytes]:
    """Start a server for one control, or for those that come to a listener as long as its owner lives."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.forkserver", str(sock.fileno()), str(owner), *modules],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONHASHSEED": hash_seed},
        pass_fds=[sock.fileno()],
        start_new_session=True,
    )


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


# The server's side


def _serve(sock: socket.socket, owner: int) -> dict[str, Any] | None:
    """Fork whenever asked to; returns in the forked process, with what that is to become."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        if owner:
            selector.register(os.pidfd_open(owner), selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if not isinstance(key.fileobj, socket.socket):
                    path = Path(sock.getsockname())
                    path.unlink()
                    path.with_suffix(".lock").unlink(missing_ok=True)
                    return None
                if owner and key.fileobj is sock:
                    selector.register(sock.accept()[0], selectors.EVENT_READ)
                elif (request := _next_request(key.fileobj)) is None:
                    if not owner:
                        return None
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                else:
                    message, descriptors = request
                    if os.fork() == 0:
                        _close_all(selector)
                        return _watched(message, *descriptors)
                    for descriptor in descriptors:
                        os.close(descriptor)
                _reap()


def _close_all(selector: selectors.BaseSelector) -> None:
    for each in selector.get_map().values():
        if isinstance(each.fileobj, socket.socket):
            each.fileobj.close()
        else:
            os.close(each.fd)


def _next_request(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next request with its descriptors; None where nobody asks any more."""
    message, descriptors, _, _ = socket.recv_fds(control, _MESSAGE_BYTES, 5)
    return (json.loads(message), descriptors) if message else None


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _watched(request: dict[str, Any], status: int, stdout: int, stderr: int, *more: int) -> dict[str, Any]:
    """Fork once more; the parent of the program stays behind to report its process id and exit status."""
    stdin, network = (more[0], more[1:]) if request["stdin"] else (None, more)
    if stdin is not None:
        os.dup2(stdin, 0)
        os.close(stdin)
    for descriptor in network:
        enter_network(descriptor)
    pid = os.fork()
    if pid:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        for descriptor in (stdout, stderr):
            os.close(descriptor)
        try:
            os.write(status, str(pid).encode())
            os.write(status, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
        finally:
            os._exit(0)
    os.close(status)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    return request


def _become(request: Mapping[str, Any]) -> None:
    """Run the program, as the interpreter would have."""
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if request["env"].get("PYTHONUNBUFFERED") and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(write_through=True)
    if request["before"]:
        pkgutil.resolve_name(request["before"])()
    kind, *rest = request["arguments"]
    place = {"-m": request["cwd"], "-c": ""}.get(kind, os.path.dirname(os.path.abspath(kind)))
    searched = [path for path in request["env"].get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = list(dict.fromkeys([place, *searched, *sys.path[1:]]))
    if kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = types.ModuleType("__main__")  # with no name and no file to import it by
        exec(compile(rest[0], "<string>", "exec"), sys.modules["__main__"].__dict__)
    else:
        sys.argv = [kind, *rest]
        runpy.run_path(kind, run_name="__main__")


def _main() -> None:
    sock, owner = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # imports about each other, forks about threads of C libraries
        for name in sys.argv[3:]:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # a collection in a fork would copy all pages: with torch that takes 1.5 s of CPU
        request = _serve(sock, owner)
    if request is not None and request["teardown"]:
        _become(request)
    elif request is not None:
        os._exit(to_the_end(lambda: _become(request)))


def to_the_end(program: Callable[[], object]) -> int:
    """Run the program, its threads and its exit handlers to their end; the exit status."""
    code: int | None = 0
    try:
        program()
    except SystemExit as exc:
        if not isinstance(exc.code, int | None):
            raise
        code = exc.code
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code or 0


if __name__ == "__main__":
    _main()
