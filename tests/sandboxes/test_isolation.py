"""What holds a command in its sandbox, on every back end that isolates: agent, time, processes, memory."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from orsay.sandboxes.sandbox import Sandbox

from ..support.bubblewrap import bubblewrap_sandbox
from ..support.sandboxes import comes_true, docker_sandbox

Make: TypeAlias = Callable[..., AbstractAsyncContextManager[Sandbox]]


@pytest.fixture(
    params=[
        pytest.param("bubblewrap", marks=pytest.mark.process),
        pytest.param("docker", marks=pytest.mark.engine),
    ]
)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes a sandbox of each kind, from fields of a SandboxSpec."""
    return docker_sandbox if request.param == "docker" else partial(bubblewrap_sandbox, tmp_path)


async def test_a_command_cannot_reach_the_agent(make: Make) -> None:
    async with make() as sandbox:
        for attack in (
            "echo forged > /proc/1/fd/1",
            "cat /proc/1/fd/0",
            "echo forged > /proc/$PPID/fd/5",
            "cat /proc/1/mem /proc/1/environ",
            "python3 -c 'import ctypes; exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != 0)'",
        ):
            result = await sandbox.run(attack, timeout_s=20)
            assert result.return_code not in (0, 124), attack
        await sandbox.run("kill -9 1; kill -TERM 1; kill -STOP 1; rm -f /.orsay-agent /dev/.orsay-agent")
        assert (await sandbox.run("echo alive")).output == b"alive\n"


async def test_a_command_cannot_change_the_limits_of_the_agent(make: Make) -> None:
    script = "import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (6, 6))"
    async with make() as sandbox:
        assert b"PermissionError" in (await sandbox.run(["python3", "-c", script])).output
        assert (await sandbox.run("echo alive")).output == b"alive\n"


async def test_devices_and_users_of_the_image_may_be_anything(make: Make) -> None:
    async with make() as sandbox:
        await sandbox.run("rm /dev/null /etc/passwd; mkfifo /dev/null /etc/passwd")
        result = await sandbox.run(["echo", "alive"], timeout_s=20)  # bash itself reads /etc/passwd
        assert result.output == b"alive\n"
        result = await sandbox.run(["true"], user="nobody", timeout_s=20)
        assert (result.return_code, result.output) == (127, b"nobody: No such file or directory\n")
        assert (await sandbox.stat("/etc/passwd")).kind == "other"


THREAD_GOES_ON = """
import ctypes, threading, time
def work():
    while True:
        time.sleep(0.02)
        open("/tmp/ticks", "a").write("x")
threading.Thread(target=work).start()
time.sleep(0.1)
ctypes.CDLL(None).syscall({exit}, 0)
"""


async def test_what_hides_from_its_time_limit_is_killed_as_well(make: Make) -> None:
    exit_number = {"x86_64": 60, "aarch64": 93}[platform.machine()]
    async with make(processes=60) as sandbox:
        await sandbox.write("/tmp/z.py", THREAD_GOES_ON.format(exit=exit_number).encode())
        for command in ("python3 /tmp/z.py & sleep 60", "exec python3 /tmp/z.py"):
            result = await sandbox.run(command, timeout_s=1)
            assert result.timed_out
            ticks = (await sandbox.stat("/tmp/ticks")).size
            await asyncio.sleep(0.3)
            assert (await sandbox.stat("/tmp/ticks")).size == ticks


async def test_a_command_that_stops_its_supervisor_is_ended_by_the_agent(make: Make) -> None:
    async with make() as sandbox:
        result = await sandbox.run("kill -STOP $PPID; sleep 60", timeout_s=0.5)
        assert result.timed_out and result.return_code == 124
        first = asyncio.Event()
        script = "kill -STOP $PPID; echo stopped; sleep 60"
        running = asyncio.create_task(sandbox.run(script, on_output=lambda _: first.set()))
        await first.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        async def gone() -> bool:
            return not sandbox._connection._jobs and await few(sandbox)

        await comes_true(gone)


async def test_writes_that_are_cancelled_leave_nothing_behind(make: Make) -> None:
    async with make() as sandbox:
        for _ in range(5):
            writing = asyncio.create_task(sandbox.write("/tmp/large", b"x" * (8 << 20)))
            await asyncio.sleep(0.01)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing

        async def gone() -> bool:
            return not sandbox._connection._jobs and await few(sandbox)

        await comes_true(gone)


async def test_a_fork_bomb_ends_at_its_time_limit_and_the_sandbox_goes_on(make: Make) -> None:
    async with make(processes=60) as sandbox:
        result = await sandbox.run("bomb() { bomb | bomb & }; bomb; sleep 60", timeout_s=1)
        assert result.timed_out

        async def recovered() -> bool:
            return (await sandbox.run("echo alive")).output == b"alive\n"

        await comes_true(recovered)
        await comes_true(lambda: few(sandbox))


async def few(sandbox: Sandbox) -> bool:
    """Whether none of its processes is left, but for the agent and those that count."""
    return int((await sandbox.run("ls -d /proc/[0-9]* 2>/dev/null | wc -l")).output) <= 6


async def test_memory_over_the_limit_ends_the_command_alone(make: Make) -> None:
    async with make(memory_bytes=64 << 20) as sandbox:
        result = await sandbox.run("python3 -c 'x = bytearray(500 << 20)'", timeout_s=60)
        assert result.return_code == 137 and not result.timed_out
        assert (await sandbox.run("echo alive")).output == b"alive\n"
