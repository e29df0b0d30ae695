"""Sandboxes of a server for environments in containers and on other servers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay.errors import ConfigError
from orsay.runtimes.docker.engine import Engine
from orsay.runtimes.docker.sandboxes import SandboxAddress

from ..support.config_server import FileServer, configured, written
from ..support.engine import BASE, ROOT, image, needs_engine
from ..support.server_process import server
from ..support.servers import orsay
from ..support.sockets import free_port

openreward = pytest.importorskip("openreward", reason="needs the package openreward")

FILE = ROOT / "tests" / "support" / "sandbox_environments.py"
IMAGE = "generalreasoning/python-ds:3.12-tools"
KEY = "key-of-the-trainer"
SERVICE = f"""
api_keys = ["{KEY}"]
[sandboxes]
backend = "docker"
[sandboxes.images]
"{IMAGE}" = "{BASE}"
[sandboxes.data]
"Tests/Workroom" = "data"
"""
SERVE = (
    "from env import Workroom; from openreward.environments import Server;"
    " Server([Workroom]).run(host='0.0.0.0', port=8080)"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data" / "tasks" / "sum").mkdir(parents=True)
    (tmp_path / "data" / "tasks" / "sum" / "numbers.txt").write_text("20\n22\n")
    return tmp_path


@contextmanager
def trainer(monkeypatch: pytest.MonkeyPatch, url: str) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("OPENREWARD_SESSION_URL", url)
        patch.setenv("OPENREWARD_API_URL", url)
        patch.setenv("OPENREWARD_DISABLE_UPDATE_CHECK", "1")
        yield


async def plays(monkeypatch: pytest.MonkeyPatch, served: FileServer) -> dict[str, Any]:
    """Win an episode, and tell what another one saw of its sandbox, which it leaves to the server."""
    url = served.url.replace("0.0.0.0", "127.0.0.1")
    with trainer(monkeypatch, url):
        environments = openreward.AsyncOpenReward(api_key=KEY).environments
        environment = environments.get("workroom")
        task, forgetful = await environment.list_tasks("train")
        async with environment.session(task=task) as session:
            told = await session.call_tool("bash", {"command": "cat /orwd_data/*; echo 42 > /tmp/answer.txt"})
            assert told.blocks[0].text.startswith("20\n22")
            assert (await session.call_tool("submit", {})).reward == 1.0
        async with environment.session(task=forgetful) as session:
            looked: dict[str, Any] = json.loads(
                (await session.call_tool("look", {"cmd": "env"})).blocks[0].text
            )
            assert looked["key"] not in (KEY, "")
            headers = {"X-API-Key": looked["key"], "X-Session-ID": looked["sid"]}
            async with httpx.AsyncClient(base_url=url, headers=headers) as http:
                assert (await http.post("/ping")).status_code == 200
        await environments.aclose()
    async with await Engine.connect() as engine:
        assert await engine.containers({"orsay.sandbox": looked["sid"]}) == []
    return looked


@needs_engine
async def test_sessions_on_another_server_use_those_of_the_gateway(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    with trainer(monkeypatch, f"http://127.0.0.1:{port}"):
        upstream = server(str(FILE), imported=("openreward.toolsets",))
        host = upstream.__enter__()
    try:
        text = f'port = {port}\n{SERVICE}[environments.far]\nurl = "{host.url}"\nsandboxes = true\n'
        with configured(folder, text, ORSAY_PORT=str(port)) as gateway:
            await plays(monkeypatch, gateway)
            headers = {"X-API-Key": KEY}
            async with httpx.AsyncClient(base_url=gateway.url, headers=headers, timeout=60) as http:
                settings = {"environment": "a/b", "image": IMAGE, "machine_size": "0.5:1"}
                made = (await http.post("/create_sandbox", json=settings)).text
                sid = made.partition("data: ")[2].split()[0]
                http.headers["X-Session-ID"] = sid
                assert sid.startswith("sb-") and (await http.post("/ping")).status_code == 200
                assert (await http.post("/delete_session")).status_code == 200
                assert (await http.post("/ping")).status_code == 410
    finally:
        upstream.__exit__(None, None, None)


@needs_engine
@pytest.mark.timeout(300)
@pytest.mark.parametrize("network", ["bridge", "isolated"])
async def test_sessions_in_containers_reach_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    entry = {
        "image": image("openreward"),
        "network": network,
        "command": ["python", "-c", SERVE],
        "volumes": [f"{FILE}:/app/env.py:ro"],
    }
    text = f'host = "0.0.0.0"\n{SERVICE}[environments.boxed]\nsandboxes = true\n' + "".join(
        f"{name} = {json.dumps(value)}\n" for name, value in entry.items()
    )
    with configured(folder, text) as served:
        await plays(monkeypatch, served)


@needs_engine
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "it listens on 127.0.0.1"),
        ('host = "127.0.0.2"\n', "it listens on 127.0.0.2"),
    ],
)
def test_containers_that_cannot_reach_the_server_are_refused(folder: Path, more: str, said: str) -> None:
    text = f'{more}{SERVICE}[environments.boxed]\nimage = "{BASE}"\nsandboxes = true\n'
    ended = orsay("serve", "-c", str(written(folder, text)), "--port", "0")
    assert ended.returncode == 2
    assert "containers cannot reach the sandboxes" in ended.stderr and said in ended.stderr


@needs_engine
async def test_the_address_depends_on_the_network() -> None:
    everywhere, one = SandboxAddress("0.0.0.0", 80), SandboxAddress("203.0.113.7", 80)
    async with await Engine.connect() as engine:
        gateway, internal = await engine.gateway("bridge")
        assert not internal
        assert await everywhere.seen_from(engine, "bridge") == f"http://{gateway}:80"
        assert await one.seen_from(engine, "bridge") == "http://203.0.113.7:80"
        name = f"orsay-test-{os.getpid()}"
        network = await engine.create_network(name, labels={"orsay.test": name}, interface=name[-15:])
        try:
            gateway, internal = await engine.gateway(name)
            assert internal
            assert await everywhere.seen_from(engine, name) == f"http://{gateway}:80"
            with pytest.raises(ConfigError, match=f"leads to {gateway} only"):
                await one.seen_from(engine, name)
            proxied = SandboxAddress("127.0.0.1", 80, "http://proxy")
            assert await proxied.seen_from(engine, name) == "http://proxy"
        finally:
            await engine.remove_network(network)


@pytest.mark.process
@pytest.mark.parametrize("source", ['image = "x"', 'url = "http://127.0.0.1:1"'])
def test_without_sandboxes_no_entry_can_use_them(folder: Path, source: str) -> None:
    file = written(folder, f"[environments.far]\n{source}\nsandboxes = true\n")
    ended = orsay("config", "--check", str(file))
    assert ended.returncode == 2 and "sandboxes = true, but this server has none for" in ended.stderr
