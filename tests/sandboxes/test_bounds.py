"""What clients, commands and back ends ask too much of: bounds, and answers that say which."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from orsay.authoring.sandbox import blocking
from orsay.authoring.sandbox.model import LARGEST_COMMAND, SandboxOptions
from orsay.authoring.sandbox.remote import RemoteSandbox, RemoteSandboxes
from orsay.errors import ImageMissing, SandboxError, SandboxRefused
from orsay.protocols.sandboxes.backlog import Backlog
from orsay.sandboxes import runs
from orsay.sandboxes.base import SandboxSpec
from orsay.sandboxes.bubblewrap.backend import HOST
from orsay.sandboxes.bubblewrap.cgroups import Groups, find_groups
from orsay.sandboxes.keys import SandboxKeys, may_hold_keys
from orsay.sandboxes.runs import Run, Runs, digest_of
from orsay.sandboxes.sandbox import RunResult
from orsay_protocol.sse import encode_result

from ..support.bubblewrap import bubblewrap_sandboxes
from ..support.engine import needs_engine
from ..support.sandboxes import bare_agent, comes_true, docker_sandboxes
from ..support.server_process import ServerProcess, server

KEY = "key-of-the-trainer"
MIB = 1 << 20


@pytest.fixture(scope="module")
def served() -> Iterator[ServerProcess]:
    with server(options=["--sandboxes", "docker"], api_keys=[KEY]) as found:
        yield found


@pytest_asyncio.fixture
async def box(served: ServerProcess) -> AsyncIterator[RemoteSandbox]:
    made = await RemoteSandboxes(served.url, KEY).create(SandboxOptions(image="python:3.11-slim"))
    yield made
    await made.close()


@pytest_asyncio.fixture
async def http(served: ServerProcess, box: RemoteSandbox) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"X-API-Key": KEY, "X-Session-ID": box.id}
    async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=60) as client:
        yield client


# requests


@needs_engine
async def test_input_of_a_command_is_bounded(box: RemoteSandbox, http: httpx.AsyncClient) -> None:
    typed = bytes(range(256)) * (20 * 1024)
    result = await box.run(["sha256sum"], stdin=typed)
    assert result.output.split()[0].decode() == hashlib.sha256(typed).hexdigest()
    with pytest.raises(ValueError, match="write larger input to a file"):
        await box.run(["cat"], stdin=bytes(LARGEST_COMMAND))
    body = json.dumps({"script": "wc -c", "stdin": "A" * LARGEST_COMMAND})
    assert (await http.post("/orsay/sandboxes/run", content=body)).status_code == 413


@needs_engine
async def test_a_list_of_names_is_bounded(box: RemoteSandbox) -> None:
    names = "import os; os.mkdir('/m'); os.chdir('/m'); [os.mknod(str(i)) for i in range(50_000)]"
    assert (await box.run(["python3", "-c", names])).return_code == 0
    found = await box.list("/m")
    assert [each.name for each in found] == sorted(map(str, range(50_000)))
    await box.write("/m/one-more", b"")
    with pytest.raises(OSError, match="more than 50000 entries"):
        await box.list("/m")
    assert (await box.run("mkdir /n; touch /n/$'\\xff' /n/a")).return_code == 0
    assert [each.name for each in await box.list("/n")] == ["a", "\udcff"]


@needs_engine
async def test_a_result_of_many_parts_is_whole(box: RemoteSandbox, http: httpx.AsyncClient) -> None:
    command = "head -c 3000001 /dev/urandom > /f; cat /f"
    answer = await http.post("/run", json={"cmd": command, "max_bytes": None})
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    told = json.loads("".join(data[1:]))
    assert base64.b64decode(told.pop("output"), validate=True) == await box.read("/f")
    assert told == {"return_code": 0, "timed_out": False}


@needs_engine
@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"/read_file?path=/etc/passwd&offset={'0' * 5000}", "offset"),
        ("/read_file?path=/etc/passwd&length=9999999999999999999", "length"),
        ("/orsay/sandboxes/write?path=/tmp/x&mode=", "mode"),
        ("/orsay/sandboxes/write?path=/tmp/x&mode=77777", "mode"),
        ("/orsay/sandboxes/stat?path=/%ff", "No such file"),
    ],
)
async def test_odd_parameters_are_refused(http: httpx.AsyncClient, path: str, said: str) -> None:
    answer = await http.post(path)
    assert answer.status_code == 400 and said in answer.json()["detail"]


@needs_engine
@pytest.mark.parametrize("size", ["9" * 400 + ":1", "1:" + "9" * 400])
async def test_an_endless_machine_size_is_refused(http: httpx.AsyncClient, size: str) -> None:
    body = {"environment": "x", "image": "python:3.11-slim", "machine_size": size}
    answer = await http.post("/create_sandbox", json=body)
    assert answer.status_code == 400 and "machine_size" in answer.json()["detail"]


# output that waits


@needs_engine
async def test_output_for_slow_readers_is_bounded(
    served: ServerProcess, box: RemoteSandbox, http: httpx.AsyncClient
) -> None:
    readers = []
    url = httpx.URL(served.url)
    for number in range(3):
        body = json.dumps({"script": f"head -c {60 * MIB} /dev/zero; touch /done-{number}"}).encode()
        reader = await asyncio.to_thread(socket.create_connection, (url.host, url.port), 60)
        head = (
            f"POST /orsay/sandboxes/run HTTP/1.0\r\nX-API-Key: {KEY}\r\nX-Session-ID: {box.id}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        reader.sendall(head.encode() + body)
        readers.append(reader)
    for number in range(3):

        async def has_ended(path: str = f"/orsay/sandboxes/stat?path=/done-{number}") -> bool:
            return (await http.post(path)).status_code == 200

        await comes_true(has_ended, timeout_s=60)
    ends = [await asyncio.to_thread(_end, reader) for reader in readers]
    cut = [end for _, end in ends if end["truncated"]]
    assert cut and all(end["output_bytes"] == 60 * MIB for _, end in ends)
    assert sum(size for size, _ in ends) < 160 * MIB  # 128 MiB, and what sockets hold
    assert all(size == 60 * MIB for size, end in ends if not end["truncated"])
    later = await box.run(f"head -c {60 * MIB} /dev/zero")
    assert len(later.output) == 60 * MIB and not later.truncated


def _end(reader: socket.socket) -> tuple[int, dict[str, Any]]:
    """Bytes of output that were told, and the last line."""
    size = 0
    with reader, reader.makefile("rb") as file:
        for line in file:
            if line.startswith(b'{"output"'):
                size += len(base64.b64decode(json.loads(line)["output"]))
            elif line.startswith(b'{"end"'):
                return size, json.loads(line)["end"]
    raise AssertionError("no end was told")


def test_what_waits_is_counted_for_each_owner_and_in_all() -> None:
    backlog = Backlog(per_owner=10, in_all=15)
    assert backlog.add("a", 10) and not backlog.add("a", 1)
    assert backlog.add("b", 5) and not backlog.add("b", 1)
    backlog.remove("a", 10)
    assert backlog.add("b", 5) and not backlog.add("b", 1) and backlog.add("a", 5)


@pytest.mark.process
async def test_output_is_kept_or_passed_on(tmp_path: Path) -> None:
    async with bare_agent(tmp_path) as sandbox:
        passed: list[bytes] = []
        result = await sandbox.run("head -c 1000000 /dev/zero", kept_bytes=1000, on_output=passed.append)
        assert 1000 <= len(result.output) < 500_000 and result.output_bytes == 1_000_000
        assert sum(map(len, passed)) == 1_000_000 and not result.truncated


# results that are kept


async def ended(kept: Runs, output: bytes) -> Run:
    async def work() -> RunResult:
        return RunResult(output, 0, False, False, 0.0)

    run = kept.start(await digest_of(b"a request"), work())
    await run.result
    await asyncio.sleep(0)
    return run


async def test_a_request_is_known_by_its_digest() -> None:
    kept = Runs(100)
    large = bytes(3 * MIB)
    run = kept.start(await digest_of(large), asyncio.sleep(0, RunResult(b"", 0, False, False, 0.0)))
    run.left()
    assert kept.left_behind(await digest_of(large)) is run
    assert kept.left_behind(await digest_of(large[1:])) is None
    assert run.digest == hashlib.sha256(large).digest()
    await run.result


async def test_a_result_that_nobody_asks_for_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Runs(100)
    run = await ended(kept, b"x")
    kept.sweep()
    assert kept.find(run.id) is run
    monkeypatch.setattr(runs, "_EXPIRED_S", -1.0)
    kept.sweep()
    assert kept.find(run.id) is None and kept.was_forgotten(run.id)


async def test_results_of_several_sandboxes_have_one_bound() -> None:
    one = Runs(100, lambda: 100 - one.size - other.size)
    other = Runs(100, lambda: 100 - one.size - other.size)
    await ended(one, bytes(60))
    first, second = await ended(other, bytes(40)), await ended(other, bytes(40))
    assert one.size + other.size == 140
    other.sweep()
    assert other.find(first.id) is None and other.find(second.id) is second
    assert one.size == 60


# code that is not async


def test_threads_share_one_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made, new = [], asyncio.new_event_loop

    def slow() -> asyncio.AbstractEventLoop:
        time.sleep(0.05)
        made.append(new())
        return made[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", slow)
    threads = [threading.Thread(target=blocking._loop, args=(-1,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for loop in made:
        loop.call_soon_threadsafe(loop.stop)
    for thread in threading.enumerate():
        if thread.name == "orsay-sandboxes":
            thread.join(10)
    for loop in made:
        loop.close()
    assert len(made) == 1


# keys


def test_keys_are_seen_wherever_events_cut_them() -> None:
    key, _ = SandboxKeys().issue()
    for length in range(32_600, 32_780):
        result = b'{"text":"' + b"x" * length + key.encode() + b"y" * 40_000 + b'"}'
        assert may_hold_keys(encode_result(result))
    assert not may_hold_keys(encode_result(b'{"text":"' + b"x" * 100_000 + b'"}'))
    assert not may_hold_keys(b'{"text":"orsay session"}')


# what cannot be made


@needs_engine
async def test_what_the_engine_refuses_is_the_mistake_of_the_author() -> None:
    async with docker_sandboxes() as (sandboxes, _):
        with pytest.raises(SandboxRefused, match="CPUs"):
            await sandboxes.create(SandboxSpec(image="python:3.11-slim", cpus=4000))
        with pytest.raises(ImageMissing, match="lowercase"):
            await sandboxes.create(SandboxSpec(image="No/Such"))


def test_groups_that_cannot_all_be_made_are_undone(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    groups = Groups(1, {"memory": tmp_path / "memory", "cpu": tmp_path / "missing"})
    with pytest.raises(OSError, match="missing"):
        groups.make("one", memory_bytes=None, cpus=None, processes=None)
    assert list((tmp_path / "memory").iterdir()) == []


@pytest.mark.process
async def test_a_sandbox_without_its_groups_leaves_nothing(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        (own,) = (each for each in tmp_path.iterdir() if each.is_dir())
        bases = find_groups(f"orsay-{own.name}").folders
        if len(bases) < 2:
            pytest.skip("needs groups of version 1, as root")
        before = {each.name for each in own.iterdir()}
        bases[-1].rmdir()
        with pytest.raises(SandboxError):
            await sandboxes.create(SandboxSpec(image=HOST))
        assert {each.name for each in own.iterdir()} == before
        assert not [each for base in bases[:-1] for each in base.iterdir() if each.is_dir()]
        bases[-1].mkdir()
        async with await sandboxes.create(SandboxSpec(image=HOST)) as sandbox:
            assert (await sandbox.run("true")).return_code == 0
