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
