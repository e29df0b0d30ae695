"""Sandboxes as containers: what they may, what they may not, and that none stays."""

from __future__ import annotations

import asyncio
import platform

import pytest
from orsay.errors import ImageMissing, SandboxError, SandboxGone
from orsay.runtimes.docker.engine import Engine
from orsay.sandboxes.base import SandboxSpec
from orsay.sandboxes.sandbox import Sandbox

from ..support.engine import BASE, needs_engine
from ..support.sandboxes import comes_true, docker_sandbox, docker_sandboxes

pytestmark = needs_engine


async def test_a_command_cannot_reach_the_agent() -> None:
    async with docker_sandbox() as sandbox:
        for attack in (
            "echo forged > /proc/1/fd/1",
            "cat /proc/1/fd/0",
            "echo forged > /proc/$PPID/fd/5",
            "cat /proc/1/mem /proc/1/environ",
            "python3 -c 'import ctypes; exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != 0)'",
        ):
            result = await sandbox.run(attack, timeout_s=20)
            assert result.return_code not in (0, 124), attack
        await sandbox.run("kill -9 1; kill -TERM 1; kill -STOP 1; rm -f /.orsay-agent")
        assert (await sandbox.run("echo alive")).output == b"alive\n"


async def test_a_command_cannot_change_the_limits_of_the_agent() -> None:
    script = "import resource; resource.prlimit(1, resource.RLIMIT_NOFILE, (6, 6))"
    async with docker_sandbox() as sandbox:
        assert b"PermissionError" in (await sandbox.run(["python3", "-c", script])).output
        assert (await sandbox.run("echo alive")).output == b"alive\n"


async def test_devices_and_users_of_the_image_may_be_anything() -> None:
    async with docker_sandbox() as sandbox:
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


async def test_what_hides_from_its_time_limit_is_killed_as_well() -> None:
    exit_number = {"x86_64": 60, "aarch64": 93}[platform.machine()]
    async with docker_sandbox(processes=60) as sandbox:
        await sandbox.write("/tmp/z.py", THREAD_GOES_ON.format(exit=exit_number).encode())
        for command in ("python3 /tmp/z.py & sleep 60", "exec python3 /tmp/z.py"):
            result = await sandbox.run(command, timeout_s=1)
            assert result.timed_out
            ticks = (await sandbox.stat("/tmp/ticks")).size
            await asyncio.sleep(0.3)
            assert (await sandbox.stat("/tmp/ticks")).size == ticks


async def test_a_command_that_stops_its_supervisor_is_ended_by_the_agent() -> None:
    async with docker_sandbox() as sandbox:
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


async def test_writes_that_are_cancelled_leave_nothing_behind() -> None:
    async with docker_sandbox() as sandbox:
        for _ in range(5):
            writing = asyncio.create_task(sandbox.write("/tmp/large", b"x" * (8 << 20)))
            await asyncio.sleep(0.01)
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing

        async def gone() -> bool:
            return not sandbox._connection._jobs and await few(sandbox)

        await comes_true(gone)


async def test_what_a_container_may_do() -> None:
    async with docker_sandbox() as sandbox:
        status = (await sandbox.run("cat /proc/self/status")).output.decode()
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        kept = (1 << 0) | (1 << 1) | (1 << 3) | (1 << 4) | (1 << 5) | (1 << 6) | (1 << 7)  # capability.h
        for which in ("CapEff", "CapPrm", "CapBnd"):
            assert int(fields[which], 16) == kept
        assert fields["NoNewPrivs"].strip() == "1" and fields["Seccomp"].strip() == "2"
        assert (await sandbox.run("ls /sys/class/net")).output == b"lo\n"
        chown = "useradd -m agent && touch /x && chown agent /x && stat -c %U /x"
        assert (await sandbox.run(chown)).output == b"agent\n"


async def test_an_open_network_has_a_way_out() -> None:
    async with docker_sandbox(network="open") as sandbox:
        assert b"eth0" in (await sandbox.run("ls /sys/class/net")).output


async def test_a_fork_bomb_ends_at_its_time_limit_and_the_sandbox_goes_on() -> None:
    async with docker_sandbox(processes=60) as sandbox:
        result = await sandbox.run("bomb() { bomb | bomb & }; bomb; sleep 60", timeout_s=1)
        assert result.timed_out

        async def recovered() -> bool:
            return (await sandbox.run("echo alive")).output == b"alive\n"

        await comes_true(recovered)
        await comes_true(lambda: few(sandbox))


async def few(sandbox: Sandbox) -> bool:
    """Whether none of its processes is left, but for the agent and those that count."""
    return int((await sandbox.run("ls -d /proc/[0-9]* | wc -l")).output) <= 6


async def test_memory_over_the_limit_ends_the_command_alone() -> None:
    async with docker_sandbox(memory_bytes=64 << 20) as sandbox:
        result = await sandbox.run("python3 -c 'x = bytearray(500 << 20)'", timeout_s=60)
        assert result.return_code == 137 and not result.timed_out
        assert (await sandbox.run("echo alive")).output == b"alive\n"


async def test_an_image_that_is_not_there_or_has_no_shell_is_told() -> None:
    async with docker_sandboxes() as (sandboxes, _):
        with pytest.raises(ImageMissing, match="no image orsay-no-such-image:1"):
            await sandboxes.create(SandboxSpec(image="orsay-no-such-image:1"))
        sandbox = await sandboxes.create(SandboxSpec(image=BASE, variables={"A": "b c"}))
        assert (await sandbox.run('echo "$A"')).output == b"b c\n"
        await sandbox.run("rm /bin/bash")
        result = await sandbox.run("true")
        assert (result.return_code, result.output) == (127, b"/bin/bash: No such file or directory\n")
    with pytest.raises(SandboxError, match="closed"):
        await sandboxes.create(SandboxSpec(image=BASE))


async def test_a_container_that_is_killed_is_a_sandbox_that_is_gone() -> None:
    async with docker_sandboxes() as (sandboxes, labels), await Engine.connect() as engine:
        sandbox = await sandboxes.create(SandboxSpec(image=BASE))
        running = asyncio.create_task(sandbox.run("sleep 60"))
        [container] = await engine.containers(labels)
        await engine.kill(container["Id"])
        with pytest.raises(SandboxGone, match="connection to it broke"):
            await running
        assert sandbox.gone is not None


async def test_a_container_whose_server_is_silent_ends_and_is_removed() -> None:
    async with docker_sandboxes(lease_s=2) as (sandboxes, labels), await Engine.connect() as engine:
        sandbox = await sandboxes.create(SandboxSpec(image=BASE))
        beat = sandbox._connection._beat
        assert beat is not None
        beat.cancel()

        async def removed() -> bool:
            return await engine.containers(labels) == []

        await comes_true(removed, timeout_s=60)


async def test_who_is_cancelled_while_creating_leaves_no_container() -> None:
    async with docker_sandboxes() as (sandboxes, labels), await Engine.connect() as engine:
        cancelled = 0
        for delay_s in (0, 0.02, 0.05, 0.1, 0.2, 0.4):
            creating = asyncio.create_task(sandboxes.create(SandboxSpec(image=BASE)))
            await asyncio.sleep(delay_s)
            creating.cancel()
            try:
                await (await creating).close()  # it was quicker
            except asyncio.CancelledError:
                cancelled += 1
        assert cancelled
        assert await engine.containers(labels) == []
