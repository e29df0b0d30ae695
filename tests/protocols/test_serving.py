from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from ..interop.servers import ROOT
from ..interop.venvs import python_for
from ..support.server_process import server

pytestmark = pytest.mark.process

REVERSE = str(ROOT / "docs" / "examples" / "environments" / "reverse.py")


def serve(python: Path | str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "orsay", "serve", REVERSE, "--port", "0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("names", ["gopher", "openenv,gopher", "openenv,"])
def test_an_unknown_protocol_stops_the_start(names: str) -> None:
    done = serve(sys.executable, "--also", names)
    assert done.returncode == 2
    assert "command line: also = " in done.stderr and "there are: openenv, mcp" in done.stderr


@pytest.mark.venv
@pytest.mark.parametrize("name", ["openenv", "mcp"])
def test_a_missing_extra_stops_the_start_and_is_named(name: str) -> None:
    done = serve(python_for("orsay", "newest"), "--also", name)
    assert done.returncode == 2
    assert f"pip install 'orsay[{name}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_option_nothing_of_it_is_loaded_or_answered() -> None:
    with server(REVERSE) as plain, httpx.Client(base_url=plain.url) as http:
        for path in ("/reset", "/step", "/mcp", "/reverse/mcp"):
            assert http.post(path, json={}).status_code == 404
        assert http.get("/state").status_code == 404
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        assert http.get("/ws", headers={**upgrade, **key}).status_code == 404
    names = "('mcp', 'websockets', 'orsay.protocols.mcp', 'orsay.protocols.openenv')"
    code = f"import sys, orsay, orsay.serving.server; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["openenv", "mcp"])
def test_each_protocol_can_be_served_alone(name: str) -> None:
    with server(REVERSE, also=name) as one, httpx.Client(base_url=one.url) as http:
        published = http.get("/openapi.json").json()["paths"]
        assert ("/{env}/reset" in published) == (name == "openenv")
        assert ("/{env}/mcp" in published) == (name == "mcp")
        assert http.get("/reverse/tools").status_code == 200
