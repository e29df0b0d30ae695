"""File operations that the code inside starves, kills or stops: it loses, and not the session."""

from __future__ import annotations

import asyncio
import errno

import pytest
from orsay.sandboxes import sandbox as module
from orsay.sandboxes.sandbox import Sandbox

ISOLATED = pytest.mark.parametrize(
    "sandbox",
    [
        pytest.param("bubblewrap", marks=pytest.mark.process),
        pytest.param("docker", marks=pytest.mark.engine),
    ],
    indirect=True,
)
"""The bare agent has no namespace: there, such code would reach this machine."""
EACH = """
import os, signal, sys, time
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid(), os.getppid()):
            try: os.kill(int(name), int(sys.argv[1]))
            except OSError: pass
"""


async def _use_files(sandbox: Sandbox, folder: str) -> None:
    await sandbox.write(f"{folder}/new", b"x" * 300_000, mode=0o600)
    assert await sandbox.read(f"{folder}/new") == b"x" * 300_000
    assert (await sandbox.stat(f"{folder}/new")).mode == 0o600
    assert "new" in [each.name for each in await sandbox.list(folder)]
    await sandbox.remove(f"{folder}/new")
    with pytest.raises(FileNotFoundError):
        await sandbox.stat(f"{folder}/new")


@ISOLATED
async def test_code_that_exhausts_the_processes(sandbox: Sandbox, folder: str) -> None:
    bomb = "(while :; do sleep 1000 & done) >/dev/null 2>&1 & sleep 1000"
    running = asyncio.create_task(sandbox.run(bomb))
    async with asyncio.timeout(60):
        while (await sandbox.run("true")).return_code != 127:
            await asyncio.sleep(0.1)
        await asyncio.gather(*(_use_files(sandbox, f"{folder}/{n}") for n in range(8)))
        assert (await running).return_code == 137
        assert (await sandbox.run("echo alive")).output == b"alive\n"


@ISOLATED
async def test_code_that_kills_all_that_it_finds(sandbox: Sandbox, folder: str) -> None:
    await sandbox.write("/tmp/each.py", EACH.encode())
    await sandbox.run("setsid python3 /tmp/each.py 9 </dev/null >/dev/null 2>&1 & sleep 0.5", timeout_s=10)
    async with asyncio.timeout(60):
        await _use_files(sandbox, folder)


@ISOLATED
async def test_code_that_stops_all_that_it_finds(
    sandbox: Sandbox, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STILL_S", 2.0)
    await sandbox.write("/tmp/each.py", EACH.encode())
    running = asyncio.create_task(sandbox.run(["python3", "/tmp/each.py", "19"]))
    await asyncio.sleep(1)
    async with asyncio.timeout(60):
        await _use_files(sandbox, folder)
        assert (await running).return_code == 137


@ISOLATED
async def test_where_even_the_end_of_all_is_of_no_use(
    sandbox: Sandbox, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox._connection, "halt", lambda: None)
    await sandbox.write("/tmp/each.py", EACH.encode())
    running = asyncio.create_task(sandbox.run("python3 /tmp/each.py 9", timeout_s=30))
    await asyncio.sleep(1)
    with pytest.raises(BlockingIOError) as caught:
        for _ in range(200):
            await sandbox.stat(folder)
    assert caught.value.errno == errno.EAGAIN
    running.cancel()


@ISOLATED
async def test_halting_leaves_services(sandbox: Sandbox, folder: str) -> None:
    ready = asyncio.Event()
    service = asyncio.create_task(sandbox.relay(47_113, f"{folder}/socket", on_ready=ready.set))
    running = asyncio.create_task(sandbox.run("sleep 100 & sleep 100"))
    await asyncio.wait_for(ready.wait(), 30)
    sandbox._connection.halt()
    assert (await asyncio.wait_for(running, 30)).return_code == 137
    assert (await sandbox.run("echo on")).output == b"on\n"
    assert not service.done()
    service.cancel()
    await asyncio.gather(service, return_exceptions=True)
