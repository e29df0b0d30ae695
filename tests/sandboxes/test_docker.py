"""Sandboxes as containers: what they may, what they may not, and that none stays."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from orsay.errors import ImageMissing, SandboxError, SandboxGone
from orsay.runtimes.docker.claim import Claim
from orsay.runtimes.docker.engine import Engine
from orsay.sandboxes.base import SandboxSpec, fork
from orsay.sandboxes.docker import DockerSandboxes

from ..support.engine import BASE, needs_engine
from ..support.sandboxes import comes_true, docker_sandbox, docker_sandboxes

pytestmark = needs_engine


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


# snapshots


async def test_a_fork_has_the_files_and_goes_its_own_way() -> None:
    async with docker_sandboxes() as (sandboxes, labels), await Engine.connect() as engine:
        spec = SandboxSpec(image=BASE, processes=100)
        first = await sandboxes.create(spec)
        await first.run("echo kept > /root/f; rm /etc/hostname /etc/debian_version; chmod 640 /root/f")
        await first.run("sleep 1000 & echo $! > /tmp/pid")
        second = await fork(sandboxes, first, spec)
        looked = "cat /root/f; stat -c %a /root/f; ls /etc/debian_version; ls /proc/$(cat /tmp/pid)"
        said = (await second.run(looked)).output.decode()
        assert said.startswith("kept\n640\n") and said.count("No such file") == 2
        assert (await first.run("kill -0 $(cat /tmp/pid)")).return_code == 0
        third = await fork(sandboxes, second, spec)
        await second.run("echo second > /root/f")
        assert (await first.read("/root/f"), await third.read("/root/f")) == (b"kept\n", b"kept\n")
        assert len(await engine.images(labels)) == 2
        await second.close()
        assert (await third.run("cat /root/f")).output == b"kept\n"
        await third.close()
        assert await engine.images(labels) == []


async def test_snapshots_outlive_their_sandbox_until_they_are_dropped() -> None:
    async with docker_sandboxes() as (sandboxes, labels), await Engine.connect() as engine:
        first = await sandboxes.create(SandboxSpec(image=BASE, variables={"A": "secret"}))
        await first.write("/x", b"1")
        snapshot = await sandboxes.snapshot(first)
        await first.close()
        with pytest.raises(SandboxGone):
            await sandboxes.snapshot(first)
        for _ in range(2):
            again = await sandboxes.create(SandboxSpec(image="any name", snapshot=snapshot))
            assert (await again.read("/x"), (await again.run("echo $A")).output) == (b"1", b"\n")
            await again.close()
        await sandboxes.drop(snapshot)
        await sandboxes.drop(snapshot)
        with pytest.raises(SandboxError, match="no snapshot"):
            await sandboxes.create(SandboxSpec(image=BASE, snapshot=snapshot))
        assert await engine.images(labels) == []
        await sandboxes.snapshot(await sandboxes.create(SandboxSpec(image=BASE)))  # close removes it
    async with await Engine.connect() as engine:
        assert await engine.images(labels) == []


async def test_a_snapshot_is_of_one_moment() -> None:
    """Two files are written in turn, each with its number: no snapshot has the second ahead of the first."""
    script = "i=0; while :; do i=$((i+1)); echo $i > /a; echo $i > /b; done"
    async with docker_sandboxes() as (sandboxes, _):
        spec = SandboxSpec(image=BASE)
        first = await sandboxes.create(spec)
        writing = asyncio.create_task(first.run(script))
        await first.run("until [ -s /b ]; do :; done; head -c 20000000 /dev/urandom > /m")
        for _ in range(3):
            async with await fork(sandboxes, first, spec) as other:
                one, two = [(await other.read(name)).strip() or b"0" for name in ("/a", "/b")]
                if int(one) and int(two):  # a file is empty between its opening and its writing
                    assert 0 <= int(one) - int(two) <= 1
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing


async def test_snapshots_of_a_killed_server_are_removed() -> None:
    server_id = f"orsay-test-{uuid.uuid4().hex}"
    async with await Engine.connect() as engine:
        dead = {**Claim(server_id, "dead").labels}
        sandboxes = DockerSandboxes(engine, dead)
        first = await sandboxes.create(SandboxSpec(image=BASE))
        snapshot = await sandboxes.snapshot(first)
        second = await sandboxes.create(SandboxSpec(image=BASE, snapshot=snapshot))
        await sandboxes.snapshot(second)
        assert len(await engine.images(dead)) == 2
        living = Claim(server_id, "living")
        living.take()
        try:
            assert await living.clear_left(engine) == 2
            assert await engine.images(dead) == []
        finally:
            living.release()
            await sandboxes.close()


async def test_an_engine_that_does_not_see_our_files_gets_a_copy_of_the_agent() -> None:
    async with await Engine.connect() as engine:
        sandboxes = DockerSandboxes(engine, {"orsay.test": uuid.uuid4().hex})
        sandboxes._sees_files = False
        try:
            sandbox = await sandboxes.create(SandboxSpec(image=BASE))
            assert (await sandbox.run("echo alive")).output == b"alive\n"
            async with await fork(sandboxes, sandbox, SandboxSpec(image=BASE)) as other:
                assert (await other.run("echo alive")).output == b"alive\n"
        finally:
            await sandboxes.close()


# the limit of the disk


@pytest.mark.parametrize("ours", [True, False], ids=["our own look", "the engine's sizes"])
async def test_a_command_that_fills_the_disk_is_killed_and_the_sandbox_goes_on(ours: bool) -> None:
    async with docker_sandboxes() as (sandboxes, _):
        sandbox = await sandboxes.create(SandboxSpec(image=BASE, disk_bytes=100 << 20))
        if not ours:
            for watched in sandboxes._disks._watched.values():
                watched.folder = ""
        fill = "for i in $(seq 100000); do head -c 1000000 /dev/zero > /root/f$i; sleep 0.01; done"
        result = await sandbox.run(f"echo begun; {fill}", timeout_s=60)
        assert result.return_code == 137 and not result.timed_out
        assert result.output.startswith(b"begun\n") and b"disk limit: it uses" in result.output
        assert (await sandbox.run("sleep 2; echo alive")).output == b"alive\n"
        assert (await sandbox.run("rm /root/f*; sleep 1.5; echo freed")).output == b"freed\n"
        again = await sandbox.run("head -c 50000000 /dev/zero > /root/f; sleep 2; echo small")
        assert again.output == b"small\n"


async def test_files_are_limited_too() -> None:
    async with docker_sandboxes() as (sandboxes, _):
        sandbox = await sandboxes.create(SandboxSpec(image=BASE, disk_bytes=32 << 20))
        make = "from time import sleep\nfor i in range(10**6): open(f'/root/{i}', 'w').close(); sleep(3e-4)"
        result = await sandbox.run(["python3", "-c", make], timeout_s=60)
        assert b"disk limit: it has" in result.output and result.return_code == 137


async def test_what_fills_the_disk_in_the_background_ends_the_sandbox() -> None:
    async with docker_sandboxes() as (sandboxes, labels), await Engine.connect() as engine:
        sandbox = await sandboxes.create(SandboxSpec(image=BASE, disk_bytes=50 << 20))
        fill = "for i in $(seq 100000); do head -c 1000000 /dev/zero > /root/f$i; sleep 0.02; done"
        await sandbox.run(f"({fill}) > /dev/null 2>&1 &")

        async def gone() -> bool:
            return sandbox.gone is not None

        await comes_true(gone)
        assert "disk limit" in str(sandbox.gone)
        with pytest.raises(SandboxGone, match="disk limit"):
            await sandbox.run("true")

        async def removed() -> bool:
            return await engine.containers(labels) == []

        await comes_true(removed)


async def test_a_file_that_is_written_over_the_limit_is_an_error_of_its_writer() -> None:
    async with docker_sandboxes() as (sandboxes, _):
        sandbox = await sandboxes.create(SandboxSpec(image=BASE, disk_bytes=32 << 20))
        with pytest.raises((OSError, SandboxGone), match="disk limit"):
            for index in range(1000):
                await sandbox.write(f"/root/f{index}", b"x" * (1 << 20))
                await asyncio.sleep(0.02)
