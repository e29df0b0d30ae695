"""The sandbox endpoints of a server, as the released ``openreward`` uses them, and as a bare client may."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from orsay.runtimes.docker.engine import Engine

from ..support.engine import BASE, ROOT, needs_engine
from ..support.sandboxes import comes_true
from ..support.server_process import ServerProcess, server

openreward = pytest.importorskip("openreward", reason="needs the package openreward")

pytestmark = needs_engine

ENVIRONMENTS = str(ROOT / "tests" / "support" / "sandbox_environments.py")
IMAGE = "generalreasoning/python-ds:3.12-tools"
KEY = "key-of-the-trainer"
SETTINGS = {"environment": "Tests/Workroom", "image": IMAGE, "machine_size": "0.5:1"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("data")
    (data / "tasks" / "sum").mkdir(parents=True)
    (data / "tasks" / "sum" / "numbers.txt").write_text("20\n22\n")
    (data / "out").symlink_to("/etc")
    settings: dict[str, Any] = {
        "sandboxes_images": {IMAGE: BASE, "no-shell": "no-shell"},
        "sandboxes_data": {"Tests/Workroom": str(data)},
        "sandboxes_max_per_key": 4,
        "api_keys": [KEY, "another"],
    }
    options = ["--sandboxes", "docker"]
    with server(ENVIRONMENTS, options=options, imported=("openreward.toolsets",), **settings) as found:
        yield found


@pytest_asyncio.fixture
async def http(served: ServerProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.url, headers={"X-API-Key": KEY}, timeout=60) as client:
        yield client


def events(text: str) -> list[tuple[str, str]]:
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and line[0] != ":")
        if fields:
            found.append((fields["event"], fields.get("data", "")))
    return found


async def create(http: httpx.AsyncClient, **more: Any) -> httpx.Response:
    return await http.post("/create_sandbox", json={**SETTINGS, **more})


@pytest_asyncio.fixture
async def sid(http: httpx.AsyncClient) -> AsyncIterator[str]:
    """A sandbox, ended afterwards."""
    made = events((await create(http)).text)
    assert made[-1][0] == "end", made
    found = str(json.loads(made[-1][1])["sid"])
    yield found
    await http.post("/delete_session", headers={"X-Session-ID": found})


async def run(http: httpx.AsyncClient, sid: str, cmd: str, **more: Any) -> list[tuple[str, str]]:
    body = {"cmd": cmd, "timeout_s": 30, "max_bytes": 50_001, "shell": "/bin/bash", **more}
    answer = await http.post("/run", json=body, headers={"X-Session-ID": sid})
    assert answer.status_code == 200, answer.text
    return events(answer.text)


def result(found: list[tuple[str, str]]) -> tuple[bytes, int, bool]:
    assert found[-1][0] == "end", found
    told = json.loads("".join(data for event, data in found if event in ("chunk", "end")))
    return base64.b64decode(told["output"]), told["return_code"], told["timed_out"]


# the released client


@pytest_asyncio.fixture
async def environment(served: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setenv("OPENREWARD_SESSION_URL", served.url)
    monkeypatch.setenv("OPENREWARD_API_URL", served.url)
    monkeypatch.setenv("OPENREWARD_DISABLE_UPDATE_CHECK", "1")
    environments = openreward.AsyncOpenReward(api_key=KEY).environments
    yield environments.get("workroom")
    await environments.aclose()


async def test_a_session_of_an_unchanged_environment(environment: Any) -> None:
    (task, _) = await environment.list_tasks("train")
    for answer, reward in (("42", 1.0), ("41", 0.0)):
        async with environment.session(task=task) as session:
            command = f"cat /orwd_data/*; echo {answer} > /tmp/answer.txt"
            told = await session.call_tool("bash", {"command": command})
            assert told.blocks[0].text.startswith("20\n22")
            assert (await session.call_tool("submit", {})).reward == reward


async def test_a_session_has_a_key_for_its_sandboxes(environment: Any, served: ServerProcess) -> None:
    (_, forgetful) = await environment.list_tasks("train")
    async with environment.session(task=forgetful) as session:
        looked = json.loads((await session.call_tool("look", {"cmd": "env; id -u"})).blocks[0].text)
        assert looked["key"] not in (KEY, "") and looked["key"] not in looked["output"]
        async with httpx.AsyncClient(base_url=served.url, headers={"X-Session-ID": looked["sid"]}) as other:
            own = await other.post("/ping", headers={"X-API-Key": looked["key"]})
            trainers = await other.post("/ping", headers={"X-API-Key": KEY})
            shared = await other.post("/ping", headers={"X-API-Key": looked["variable"]})
            assert (own.status_code, trainers.status_code, shared.status_code) == (200, 404, 404)
            elsewhere = await other.get("/list_environments", headers={"X-API-Key": looked["key"]})
            assert elsewhere.status_code == 401
    async with httpx.AsyncClient(base_url=served.url, headers={"X-Session-ID": looked["sid"]}) as other:
        ended = await other.post("/ping", headers={"X-API-Key": looked["key"]})
        assert ended.status_code == 401
    async with await Engine.connect() as engine:
        assert await engine.containers({"orsay.sandbox": looked["sid"]}) == []


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_files_of_the_released_client(served: ServerProcess, tmp_path: Path) -> None:
    client = openreward.api.sandboxes.client.AsyncSandboxesAPI
    settings = openreward.SandboxSettings(**SETTINGS)
    there = tmp_path / "there"
    there.write_bytes(bytes(range(256)) * 40_000)  # three chunks
    async with (
        client(served.url, KEY, settings) as one,
        client(served.url, KEY, settings) as two,
    ):
        await one.upload_from(there, "/deep/er/file")
        await one.copy_to(two, "/deep/er/file", "/other")
        await two.download_to("/other", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == there.read_bytes()
        assert await one.download("/deep/../deep/er/file") == there.read_bytes()
        await one.check_run("ln -s /deep/er/file /soft; mkfifo /fifo; : > /empty")
        assert await one.download("/soft") == there.read_bytes()
        assert await one.download("/empty") == b""
        for path in ("/fifo", "/deep", "/none"):
            with pytest.raises(openreward.api.sandboxes.types.FileTransferError):
                await one.download(path)
        out = await one.run("echo out; echo err >&2; exit 3")
        assert (out.output, out.return_code, out.truncated, out.timed_out) == ("out\nerr", 3, False, False)
        late = await one.run("echo early; sleep 60", timeout=1)
        assert (late.output, late.return_code, late.timed_out) == ("early", 124, True)
        whole = await one.run("seq 1 400000", max_bytes=None)
        assert len(whole.output) == 2_688_894


# commands


async def test_a_result_is_read_again_by_its_task_id(http: httpx.AsyncClient, sid: str) -> None:
    first = await run(http, sid, "echo once >> /tmp/times; wc -l < /tmp/times")
    task_id = first[0][1]
    assert first[0][0] == "task_id"
    assert result(await run(http, sid, "anything", task_id=task_id)) == result(first) == (b"1\n", 0, False)
    again = await run(http, sid, "echo once >> /tmp/times; wc -l < /tmp/times")
    assert result(again)[0] == b"2\n"
    unknown = await run(http, sid, "true", task_id="never")
    assert unknown[-1][0] == "error" and "unknown task_id" in unknown[-1][1]


async def test_a_broken_connection_does_not_run_a_command_twice(http: httpx.AsyncClient, sid: str) -> None:
    body = {"cmd": "echo once >> /tmp/times; sleep 2; wc -l < /tmp/times", "timeout_s": 30, "max_bytes": 99}
    headers = {"X-Session-ID": sid}
    async with http.stream("POST", "/run", json=body, headers=headers) as broken:
        assert broken.status_code == 200  # left before anything was read
    await asyncio.sleep(0.3)
    answer = await http.post("/run", json=body, headers=headers)
    assert result(events(answer.text))[0] == b"1\n"


async def test_a_command_of_many_bytes(http: httpx.AsyncClient, sid: str) -> None:
    found = await run(http, sid, f"printf %s '{'x' * 12_000_000}' | wc -c", max_bytes=None)
    assert result(found)[0] == b"12000000\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "cmd: Field required"),
        ({"cmd": "true", "shell": "/bin/zsh"}, "/bin/bash"),
        ({"cmd": "a\0b"}, "NUL"),
        ({"cmd": "true", "timeout_s": -1}, "timeout_s"),
    ],
)
async def test_a_wrong_command_is_refused(
    http: httpx.AsyncClient, sid: str, body: dict[str, Any], said: str
) -> None:
    answer = await http.post("/run", json=body, headers={"X-Session-ID": sid})
    assert answer.status_code == 400 and said in answer.json()["detail"]


# files


async def test_ranges(http: httpx.AsyncClient, sid: str) -> None:
    await run(http, sid, "printf 'abcdefghij' > '/tmp/a b'; ln -s '/tmp/a b' /tmp/soft")
    headers = {"X-Session-ID": sid}

    async def read(**query: Any) -> httpx.Response:
        return await http.post("/read_file", params={"path": "/tmp/a b", **query}, headers=headers)

    part = await read(offset=2, length=3)
    assert (part.content, part.headers["X-File-Size"]) == (b"cde", "10")
    assert (await read(offset=10, length=3)).status_code == 416
    assert (await read()).content == b"abcdefghij"
    for query in ({"offset": "-1"}, {"offset": "x"}, {"path": "relative"}, {"length": "9" * 30}):
        assert (await read(**query)).status_code == 400
    soft = await http.post("/stat_file", params={"path": "/tmp/soft"}, headers=headers)
    assert soft.status_code == 400 and "symlink" in soft.json()["detail"]


async def test_a_file_has_its_name_once_it_is_whole(http: httpx.AsyncClient, sid: str) -> None:
    headers = {"X-Session-ID": sid}

    async def write(content: bytes = b"", **query: Any) -> httpx.Response:
        return await http.post(
            "/write_file", params={"path": "/d/f", **query}, content=content, headers=headers
        )

    assert (await write(commit=1, size=0)).status_code == 400  # nothing was written
    assert (await write(b"later", offset=5)).status_code == 400
    assert (await write(b"first", offset=0, mkdirs=1)).status_code == 200
    assert (await write(b"later", offset=5)).status_code == 200
    assert result(await run(http, sid, "ls /d"))[0] == b""
    wrong = await write(commit=1, size=11)
    assert wrong.status_code == 400 and "another size" in wrong.json()["detail"]
    for _ in range(2):  # the answer to the first may be lost
        done = await write(commit=1, size=10)
        assert (done.status_code, done.json()["sha256"][:8]) == (200, "f386d52b")
    assert result(await run(http, sid, "cat /d/f; ls -a /d | wc -l"))[0] == b"firstlater3\n"


# life

PYPI = {"action": "allow", "host": "pypi.org", "path": None, "methods": None}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"machine_size": "nvidia-l4"}, "machine_size"),
        ({"sidecars": [{"name": "db", "image": "x"}]}, "sidecars"),
        ({"host_aliases": [{"ip": "1.2.3.4", "hostnames": ["x"]}]}, "host_aliases"),
        ({"network": {"rules": [{"action": "deny", "host": "pypi.org"}]}}, "network.rules.0.action is not"),
        ({"network": {"rules": [{**PYPI, "path": "/simple/*"}]}}, "network.rules.0.path is not supported"),
        ({"network": {"rules": [{**PYPI, "methods": ["GET"]}]}}, "network.rules.0.methods is not"),
        ({"network": {"presets": ["pypi"]}}, "network.presets is not supported"),
        ({"network": {"rules": [PYPI], "enforce": False}}, "network.enforce is not supported"),
        ({"network": {"rules": [{**PYPI, "host": "10.0.0.1"}]}}, "allow-list"),
        ({"image": 3}, "image"),
        ({"gpu": 1}, "gpu"),
        ({"environment": "no/such", "bucket_config": {"mount_path": "/d"}}, "no/such"),
        ({"bucket_config": {"mount_path": "/d", "only_dir": "none"}}, "none"),
        ({"bucket_config": {"mount_path": "/d", "only_dir": "../.."}}, "leads out"),
        ({"bucket_config": {"mount_path": "/d", "only_dir": "out"}}, "leads out"),
        ({"bucket_config": {"mount_path": "d"}}, "mount_path"),
        ({"env": {"A": "b\0--share-net"}}, "NUL"),
        ({"machine_size": "1:0.000000001"}, "memory"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(
    http: httpx.AsyncClient, more: dict[str, Any], said: str
) -> None:
    answer = await create(http, **more)
    assert answer.status_code == 400 and said in answer.json()["detail"]


async def test_an_image_that_is_missing(http: httpx.AsyncClient) -> None:
    began = time.monotonic()
    made = events((await create(http, image="no/such-image:1")).text)
    assert made[-1][0] == "error" and "no/such-image:1" in made[-1][1]
    assert time.monotonic() - began < 20
    sid = made[0][1]
    gone = await http.post("/ping", headers={"X-Session-ID": sid})
    assert gone.status_code == 410 and "could not be made" in gone.json()["detail"]


async def test_a_sandbox_can_be_ended_while_it_is_made(http: httpx.AsyncClient) -> None:
    async with http.stream("POST", "/create_sandbox", json=SETTINGS) as answer:
        text = ""
        async for piece in answer.aiter_text():
            text += piece
            if "task_id" in text and "\r\n\r\n" in text:
                break
    sid = events(text)[0][1]
    assert (await http.post("/delete_session", headers={"X-Session-ID": sid})).status_code == 200
    assert (await http.post("/ping", headers={"X-Session-ID": sid})).status_code == 410
    async with await Engine.connect() as engine:

        async def is_gone() -> bool:
            return await engine.containers({"orsay.sandbox": sid}) == []

        await comes_true(is_gone)


async def test_a_sandbox_belongs_to_its_key(http: httpx.AsyncClient, sid: str) -> None:
    for path in (
        "/run",
        "/ping",
        "/delete_session",
        "/stat_file",
        "/read_file",
        "/write_file",
        "/set_network",
        "/snapshot_sandbox",
    ):
        other = {"X-Session-ID": sid, "X-API-Key": "another"}
        answer = await http.post(path, json={"cmd": "true"}, params={"path": "/etc/passwd"}, headers=other)
        assert answer.status_code == 404, path
        answer = await http.post(path, json={}, headers={"X-Session-ID": sid, "X-API-Key": "wrong"})
        assert answer.status_code == 401, path
    assert (await http.post("/ping", headers={"X-Session-ID": sid})).status_code == 200


async def test_a_full_server_says_so(http: httpx.AsyncClient) -> None:
    made = [events((await create(http)).text)[0][1] for _ in range(4)]
    try:
        full = await create(http)
        assert (full.status_code, full.headers["X-Backend-State"]) == (503, "starting")
        assert int(full.headers["Retry-After"]) <= 10
    finally:
        for sid in made:
            await http.post("/delete_session", headers={"X-Session-ID": sid})


async def test_a_sandbox_that_was_killed_answers_410(http: httpx.AsyncClient, sid: str) -> None:
    waiting = asyncio.create_task(
        http.post("/run", json={"cmd": "sleep 50"}, headers={"X-Session-ID": sid}, timeout=30)
    )
    await asyncio.sleep(0.5)
    async with await Engine.connect() as engine:
        (container,) = await engine.containers({"orsay.sandbox": sid})
        await engine.kill(container["Id"])
    with pytest.raises(httpx.RemoteProtocolError):  # broken off: the client asks again
        await waiting
    answer = await http.post("/run", json={"cmd": "true"}, headers={"X-Session-ID": sid})
    assert answer.status_code == 410 and "gone" in answer.json()["detail"]


async def test_sandboxes_do_not_reach_one_another(http: httpx.AsyncClient, sid: str) -> None:
    other = events((await create(http)).text)[0][1]
    try:
        address = result(await run(http, other, "hostname -i"))[0].decode().strip()
        await run(http, other, "(cd /tmp && python3 -m http.server 8000 >/dev/null 2>&1 &) ; sleep 1")
        inside = await run(http, other, f"timeout 3 bash -c 'echo > /dev/tcp/{address}/8000'")
        assert result(inside)[1] == 0
        outside = await run(http, sid, f"timeout 3 bash -c 'echo > /dev/tcp/{address}/8000'")
        assert result(outside)[1] != 0
    finally:
        await http.post("/delete_session", headers={"X-Session-ID": other})


async def test_a_snapshot_is_begun_with_by_its_owner_alone(http: httpx.AsyncClient, sid: str) -> None:
    await run(http, sid, "echo kept > /f")
    made = await http.post("/snapshot_sandbox", headers={"X-Session-ID": sid})
    snapshot = made.json()["snapshot"]
    for _ in range(2):
        other = events((await create(http, orsay={"snapshot": snapshot, "processes": 50})).text)[0][1]
        assert result(await run(http, other, "cat /f; cat /sys/fs/cgroup/pids/pids.max"))[0] == b"kept\n50\n"
        await http.post("/delete_session", headers={"X-Session-ID": other})
    another = {"X-API-Key": "another"}
    body = {**SETTINGS, "orsay": {"snapshot": snapshot}}
    refused = await http.post("/create_sandbox", json=body, headers=another)
    assert refused.status_code == 400 and "no snapshot" in refused.json()["detail"]
    assert (
        await http.post("/drop_snapshot", json={"snapshot": snapshot}, headers=another)
    ).status_code == 400
    assert (await http.post("/drop_snapshot", json={"snapshot": snapshot})).status_code == 200
    async with await Engine.connect() as engine:
        assert await engine.images({"orsay.sandbox": sid}) == []
    dropped = await http.post("/create_sandbox", json=body)
    assert dropped.status_code == 400 and "no snapshot" in dropped.json()["detail"]
    unknown = await create(http, orsay={"memory": 1})
    assert unknown.status_code == 400 and "orsay.memory" in unknown.json()["detail"]


async def test_snapshots_end_with_their_session(environment: Any, served: ServerProcess) -> None:
    (task, *_) = await environment.list_tasks("train")
    async with environment.session(task=task) as session:
        looked = json.loads((await session.call_tool("look", {"cmd": "id"})).blocks[0].text)
        headers = {"X-Session-ID": looked["sid"], "X-API-Key": looked["key"]}
        async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=60) as http:
            assert (await http.post("/snapshot_sandbox")).status_code == 200
        async with await Engine.connect() as engine:
            assert len(await engine.images({"orsay.sandbox": looked["sid"]})) == 1
    async with await Engine.connect() as engine:

        async def is_gone() -> bool:
            return await engine.images({"orsay.sandbox": looked["sid"]}) == []

        await comes_true(is_gone)


async def test_nothing_is_left_of_a_stopped_server(tmp_path: Path) -> None:
    with server(ENVIRONMENTS, options=["--sandboxes", "docker"], server_name="orsay-test-left") as one:
        async with httpx.AsyncClient(base_url=one.url, timeout=60) as http:
            made = events((await create(http, image=BASE)).text)
            assert made[-1][0] == "end"
            kept = await http.post("/snapshot_sandbox", headers={"X-Session-ID": made[0][1]})
            assert kept.status_code == 200
    async with await Engine.connect() as engine:
        assert await engine.images({"orsay.server": "orsay-test-left"}) == []
        assert await engine.containers({"orsay.server": "orsay-test-left"}) == []
        assert await engine.networks({"orsay.server": "orsay-test-left"}) == []
