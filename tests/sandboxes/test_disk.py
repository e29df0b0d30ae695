"""The limit of the disk, on each back end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from orsay.errors import SandboxGone
from orsay.sandboxes.base import SandboxSpec, fork
from orsay.sandboxes.docker import DockerSandboxes

from ..support.backends import KINDS, Backend, open_kind
from ..support.sandboxes import comes_true

ENGINE_SIZES = pytest.param("engine's sizes", marks=pytest.mark.engine)


@pytest_asyncio.fixture(params=KINDS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    if request.param != ENGINE_SIZES.values[0]:
        async with open_kind(request.param, tmp_path) as found:
            yield found
        return
    async with open_kind("docker", tmp_path) as found:
        assert isinstance(found.sandboxes, DockerSandboxes)
        found.sandboxes._sizes.sees_folders = False
        yield found


@pytest.mark.parametrize("backend", [*KINDS, ENGINE_SIZES], indirect=True)
async def test_a_command_that_fills_the_disk_is_killed_and_the_sandbox_goes_on(backend: Backend) -> None:
    sandbox = await backend.sandboxes.create(SandboxSpec(image=backend.image, disk_bytes=100 << 20))
    fill = "for i in $(seq 100000); do head -c 1000000 /dev/zero > /root/f$i; sleep 0.01; done"
    result = await sandbox.run(f"echo begun; {fill}", timeout_s=60)
    assert result.return_code == 137 and not result.timed_out and result.limit == "disk"
    assert result.output.startswith(b"begun\n") and b"disk limit: it uses" in result.output
    assert (await sandbox.run("sleep 2; echo alive")).output == b"alive\n"
    assert (await sandbox.run("rm /root/f*; sleep 1.5; echo freed")).output == b"freed\n"
    again = await sandbox.run("head -c 50000000 /dev/zero > /root/f; sleep 2; echo small")
    assert again.output == b"small\n"


async def test_files_are_limited_too(backend: Backend) -> None:
    sandbox = await backend.sandboxes.create(SandboxSpec(image=backend.image, disk_bytes=32 << 20))
    make = "from time import sleep\nfor i in range(10**6): open(f'/root/{i}', 'w').close(); sleep(3e-4)"
    result = await sandbox.run(["python3", "-c", make], timeout_s=60)
    assert b"disk limit: it has" in result.output and result.return_code == 137


async def test_what_fills_the_disk_in_the_background_ends_the_sandbox(backend: Backend) -> None:
    sandbox = await backend.sandboxes.create(SandboxSpec(image=backend.image, disk_bytes=50 << 20))
    fill = "for i in $(seq 100000); do head -c 1000000 /dev/zero > /root/f$i; sleep 0.02; done"
    await sandbox.run(f"({fill}) > /dev/null 2>&1 &")

    async def gone() -> bool:
        return sandbox.gone is not None

    await comes_true(gone)
    assert "disk limit" in str(sandbox.gone)
    with pytest.raises(SandboxGone, match="disk limit"):
        await sandbox.run("true")

    async def removed() -> bool:
        return await backend.living() == set()

    await comes_true(removed)


async def test_a_file_that_is_written_over_the_limit_is_an_error_of_its_writer(backend: Backend) -> None:
    sandbox = await backend.sandboxes.create(SandboxSpec(image=backend.image, disk_bytes=32 << 20))
    with pytest.raises((OSError, SandboxGone), match="disk limit"):
        for index in range(1000):
            await sandbox.write(f"/root/f{index}", b"x" * (1 << 20))
            await asyncio.sleep(0.02)


async def test_what_a_fork_began_with_does_not_count(backend: Backend) -> None:
    spec = SandboxSpec(image=backend.image, disk_bytes=50 << 20)
    first = await backend.sandboxes.create(SandboxSpec(image=backend.image))
    await first.run("head -c 60000000 /dev/zero > /root/f")
    second = await fork(backend.sandboxes, first, spec)
    assert (await second.run("touch /root/g; sleep 2.5; echo alive")).output == b"alive\n"
