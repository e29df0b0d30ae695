"""The few lines of shell around the command of a container, run by the shells that there are."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from orsay.runtimes.docker.lease import NO_WATCH, Lease, watched

pytestmark = pytest.mark.process

SHELLS = [shell for shell in ("/bin/sh", "/bin/bash", "/bin/busybox") if Path(shell).exists()]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of the test, each in a group of its own, which ends with the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for each in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.communicate()


def run(
    started: list[subprocess.Popen[bytes]],
    code: str,
    *,
    shell: str = "/bin/sh",
    lease_s: float = 1,
    path: str | None = None,
) -> subprocess.Popen[bytes]:
    entrypoint, command = watched([sys.executable, "-c", code], lease_s)
    entrypoint[:1] = [shell, "sh"] if shell.endswith("busybox") else [shell]
    process = subprocess.Popen(
        [*entrypoint, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={"PATH": path if path is not None else os.environ["PATH"]},
    )
    started.append(process)
    return process


@pytest.mark.parametrize("shell", SHELLS)
def test_a_command_whose_lease_is_not_renewed_is_asked_to_end(
    started: list[subprocess.Popen[bytes]], shell: str
) -> None:
    process = run(started, "import time; time.sleep(60)", shell=shell)
    begun = time.monotonic()
    assert process.wait(timeout=20) == -signal.SIGTERM
    assert time.monotonic() - begun > 0.9
    assert process.stderr is not None
    assert b"the server of this container is gone" in process.stderr.readline()


def test_a_command_whose_input_is_closed_is_asked_to_end(started: list[subprocess.Popen[bytes]]) -> None:
    process = run(started, "import time; time.sleep(60)", lease_s=600)
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM


def test_a_command_that_will_not_end_is_killed(started: list[subprocess.Popen[bytes]]) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('deaf', flush=True); time.sleep(60)"
    )
    process = run(started, code, lease_s=600)
    assert process.stdout is not None
    assert process.stdout.readline() == b"deaf\n"
    process.communicate(timeout=40)
    assert process.returncode == -signal.SIGKILL


def test_a_command_goes_on_while_its_lease_is_renewed(started: list[subprocess.Popen[bytes]]) -> None:
    process = run(started, "import time; time.sleep(60)", lease_s=1)
    assert process.stdin is not None
    end = time.monotonic() + 4
    while time.monotonic() < end:
        process.stdin.write(b".")
        process.stdin.flush()
        time.sleep(0.3)
    assert process.poll() is None


def test_the_command_is_the_process_itself_with_its_own_input_and_exit_code(
    started: list[subprocess.Popen[bytes]],
) -> None:
    code = (
        "import os, sys; fds = sorted(os.listdir('/proc/self/fd'));"
        "print(os.getpid(), repr(sys.stdin.read()), sys.argv, fds);"
        "sys.exit(7)"
    )
    process = run(started, code, lease_s=60)
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert process.wait(timeout=20) == 7
    assert line.startswith(f"{process.pid} '' ['-c']")
    assert "'0', '1', '2', '3']" in line  # 3: the folder that is listed


def test_signals_reach_the_command(started: list[subprocess.Popen[bytes]]) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5));"
        "print('up', flush=True); time.sleep(60)"
    )
    process = run(started, code, lease_s=60)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.terminate()
    assert process.wait(timeout=20) == 5


def test_without_its_tools_the_command_runs_unwatched_and_says_so(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    (tmp_path / "head").symlink_to(str(shutil.which("head")))
    process = run(started, "print('ran')", path=str(tmp_path))
    out, err = process.communicate(timeout=20)
    assert (out, err.decode().strip(), process.returncode) == (b"ran\n", NO_WATCH, 0)


def test_a_lease_is_renewed_in_time_until_it_is_dropped_or_its_writer_fails() -> None:
    good: list[float] = []
    bad: list[float] = []
    lease = Lease(0.3)
    try:
        lease.hold("good", lambda data: good.append(time.monotonic()))

        def fail(data: bytes) -> None:
            bad.append(time.monotonic())
            raise BrokenPipeError

        lease.hold("bad", fail)
        end = time.monotonic() + 10
        while len(good) < 5 and time.monotonic() < end:
            time.sleep(0.02)
        assert len(good) >= 5
        assert len(bad) == 1
        lease.drop("good")
        time.sleep(0.15)
        count = len(good)
        time.sleep(0.4)
        assert len(good) == count
    finally:
        lease.stop()
