"""Snapshots and forks, on each back end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from orsay.errors import SandboxError, SandboxGone
from orsay.sandboxes.base import SandboxSpec, fork
from orsay.sandboxes.sandbox import Sandbox

from ..support.backends import KINDS, Backend, open_kind
from ..support.sandboxes import comes_true


@pytest_asyncio.fixture(params=KINDS)
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    async with open_kind(request.param, tmp_path) as found:
        yield found


async def said(sandbox: Sandbox, command: str) -> str:
    return (await sandbox.run(command)).output.decode()


async def count_is(backend: Backend, count: int) -> None:
    async def is_so() -> bool:
        return await backend.snapshots() == count

    await comes_true(is_so)


async def test_a_fork_has_the_files_and_goes_its_own_way(backend: Backend) -> None:
    sandboxes, spec = backend.sandboxes, SandboxSpec(image=backend.image, processes=100)
    first = await sandboxes.create(spec)
    await first.run("echo kept > /root/f; rm /etc/hostname /etc/debian_version; chmod 640 /root/f")
    await first.run("sleep 1000 & echo $! > /tmp/pid")
    second = await fork(sandboxes, first, spec)
    looked = "cat /root/f; stat -c %a /root/f; ls /etc/debian_version; ls -d /proc/$(cat /tmp/pid)"
    told = await said(second, looked)
    assert told.startswith("kept\n640\n") and told.count("No such file") == 2
    assert (await first.run("kill -0 $(cat /tmp/pid)")).return_code == 0
    third = await fork(sandboxes, second, spec)
    await second.run("echo second > /root/f")
    assert (await first.read("/root/f"), await third.read("/root/f")) == (b"kept\n", b"kept\n")
    await count_is(backend, 2)
    await second.close()
    assert await said(third, "cat /root/f") == "kept\n"
    await third.close()
    await count_is(backend, 0)


async def test_a_fork_has_all_that_is_said_of_files(backend: Backend) -> None:
    sandboxes, spec = backend.sandboxes, SandboxSpec(image=backend.image)
    first = await sandboxes.create(spec)
    await first.run(
        "cd /root; echo x > a; ln a b; ln -s a c; mkfifo d; mkdir -m 700 e; chown 7:8 a e; chmod 4711 a;"
        "touch -d @1000000000 a e;"
        "rm -rf /etc/skel; mkdir /etc/skel; echo y > /etc/skel/new;"
        "mv /etc/motd /root/moved; echo 127.0.0.2 more >> /etc/hosts"
    )
    look = (
        "cd /root; stat -c '%n %F %a %u:%g %h %Y' a b c d e; readlink c; test a -ef b && echo one;"
        "ls -A /etc/skel; ls /etc/motd moved"
    )
    expected = await said(first, look)
    assert "a regular file 4711 7:8 2 1000000000" in expected and "one" in expected
    async with await fork(sandboxes, first, spec) as second, await fork(sandboxes, second, spec) as third:
        assert await said(second, look) == expected == await said(third, look)
        await third.run("rm -rf /root/*; echo z > /etc/skel/own")
        assert await said(second, look) == expected == await said(first, look)


async def test_snapshots_outlive_their_sandbox_until_they_are_dropped(backend: Backend) -> None:
    sandboxes = backend.sandboxes
    first = await sandboxes.create(SandboxSpec(image=backend.image, variables={"A": "secret"}))
    await first.write("/x", b"1")
    snapshot = await sandboxes.snapshot(first)
    await first.close()
    with pytest.raises(SandboxGone):
        await sandboxes.snapshot(first)
    for _ in range(2):
        again = await sandboxes.create(SandboxSpec(image="any name", snapshot=snapshot))
        assert (await again.read("/x"), await said(again, "echo $A")) == (b"1", "\n")
        await again.close()
    await sandboxes.drop(snapshot)
    await sandboxes.drop(snapshot)
    with pytest.raises(SandboxError, match="no snapshot"):
        await sandboxes.create(SandboxSpec(image=backend.image, snapshot=snapshot))
    await count_is(backend, 0)
    await sandboxes.snapshot(await sandboxes.create(SandboxSpec(image=backend.image)))  # close removes it


async def test_a_snapshot_is_of_one_moment(backend: Backend) -> None:
    """Two files are written in turn, each with its number: no snapshot has the second ahead of the first."""
    script = "i=0; while :; do i=$((i+1)); echo $i > /a; echo $i > /b; done"
    sandboxes, spec = backend.sandboxes, SandboxSpec(image=backend.image)
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


async def test_several_at_once_and_some_that_nobody_waits_for(backend: Backend) -> None:
    sandboxes, spec = backend.sandboxes, SandboxSpec(image=backend.image)
    first = await sandboxes.create(spec)
    await first.run("head -c 5000000 /dev/urandom > /m")
    taking = [asyncio.create_task(sandboxes.snapshot(first)) for _ in range(4)]
    await asyncio.sleep(0.01)
    taking[1].cancel()
    taking[3].cancel()
    done = await asyncio.gather(*taking, return_exceptions=True)
    kept = [each for each in done if isinstance(each, str)]
    assert len(kept) >= 2 and done[0] in kept and done[2] in kept
    assert await said(first, "echo goes on") == "goes on\n"
    for each in kept:
        async with await sandboxes.create(SandboxSpec(image="", snapshot=each)) as other:
            assert await said(other, "stat -c %s /m") == "5000000\n"
        await sandboxes.drop(each)
