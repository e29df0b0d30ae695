"""Servers, and scripts of authors, with sandboxes by bubblewrap: ``--sandboxes bubblewrap`` and ``auto``."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..support.bubblewrap import bubblewrap_sandboxes
from ..support.engine import ROOT
from ..support.server_process import ServerProcess, is_running, server
from ..support.waiting import until

pytestmark = pytest.mark.process

IMAGE = "generalreasoning/python-ds:3.12-tools"
SETTINGS = {"environment": "Tests/Any", "image": IMAGE, "machine_size": "0.5:1", "block_network": True}


@pytest.fixture(autouse=True)
def usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip where there is no bubblewrap, and keep the changes of sandboxes in a folder of the test."""

    async def attempt() -> None:
        async with bubblewrap_sandboxes(tmp_path / "attempt"):
            pass

    asyncio.run(attempt())
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def served() -> Iterator[ServerProcess]:
    with server(options=["--sandboxes", "bubblewrap"], sandboxes_images={IMAGE: "host"}) as found:
        yield found


def create(url: str, **more: Any) -> dict[str, str]:
    """Data of the answer's events, by their kind."""
    answer = httpx.post(f"{url}/create_sandbox", json={**SETTINGS, **more}, timeout=60)
    answer.raise_for_status()
    found = {}
    for block in answer.text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and line[0] != ":")
        if fields:
            found[fields["event"]] = fields.get("data", "")
    return found


def run(url: str, sid: str, cmd: str) -> str:
    body = {"cmd": cmd, "timeout_s": 30, "max_bytes": 50_001, "shell": "/bin/bash"}
    answer = httpx.post(f"{url}/run", json=body, headers={"X-Session-ID": sid}, timeout=60)
    [line] = [each for each in answer.text.splitlines() if each.startswith('data: {"output')]
    return base64.b64decode(json.loads(line.removeprefix("data: "))["output"]).decode()


def states(folder: Path) -> list[Path]:
    return [each for each in folder.glob("orsay-sandboxes-*/*") if each.is_dir()]


def test_the_endpoints_of_the_platform_and_a_server_that_is_killed(
    served: ServerProcess, tmp_path: Path
) -> None:
    sid = json.loads(create(served.url)["end"])["sid"]
    assert run(served.url, sid, "id -u; python3 -c 'print(6 * 7)'") == "0\n42\n"
    refused = create(served.url, image="nobody/knows:1")["error"]
    assert "knows no image nobody/knows:1" in refused and "[sandboxes.images]" in refused
    other = json.loads(create(served.url, image="host")["end"])["sid"]
    assert run(served.url, other, "ls /work") == ""
    assert states(tmp_path)
    pid = served.pid
    os.kill(pid, signal.SIGKILL)
    await_gone(pid, tmp_path)


def await_gone(pid: int, folder: Path) -> None:
    async def gone() -> None:
        await until(lambda: not is_running(pid) and not states(folder))

    asyncio.run(gone())


def test_nothing_is_left_of_a_stopped_server(tmp_path: Path) -> None:
    with server(options=["--sandboxes", "bubblewrap"]) as one:
        assert "end" in create(one.url, image="host")
        assert states(tmp_path)
    assert not states(tmp_path)


def test_the_choice_of_a_server_without_an_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    options = ["--port", "0", "--backend", "auto"]
    one = ServerProcess(options, {}, verb=("sandboxes", "serve"))
    try:
        one.wait_for_url()
        assert "end" in create(one.url, image="host")
        assert states(tmp_path)
    finally:
        one.end()
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    command = [sys.executable, "-m", "orsay", "sandboxes", "serve", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "apt install bubblewrap" in done.stderr


def test_the_script_of_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORSAY_SANDBOXES_BACKEND", "bubblewrap")
    path = ROOT / "docs" / "examples" / "sandboxes" / "script.py"
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("42\n\nPRETTY_NAME")
