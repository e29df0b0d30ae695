"""``docs/also.md`` is right: its examples run, and it names every endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from ..docs.test_examples import run
from ..docs.test_reference import code
from ..interop.venvs import OPENENV, python_for
from ..support.documentation import EXAMPLES, cells
from ..support.server_process import ServerProcess, server

pytestmark = pytest.mark.process

REVERSE = str(EXAMPLES / "environments" / "reverse.py")


@pytest.fixture(scope="module")
def reverse() -> Iterator[ServerProcess]:
    with server(REVERSE, also="openenv,mcp") as found:
        yield found


def test_the_example_for_mcp_runs(reverse: ServerProcess) -> None:
    shown = run(EXAMPLES / "also" / "play_mcp.py", reverse.url).splitlines()
    assert "'stone'" in shown[0]
    assert "text='Right.'" in shown[1]
    assert "{'orsay': {'reward': 1.0, 'finished': True, 'metadata': None}}" in shown[1]


@pytest.mark.venv
@pytest.mark.parametrize("release", OPENENV, ids="-".join)
def test_the_example_for_openenv_runs(reverse: ServerProcess, release: tuple[str, str]) -> None:
    shown = run(EXAMPLES / "also" / "play_openenv.py", reverse.url, python=python_for(*release)).splitlines()
    assert "'stone'" in shown[0]
    assert shown[1] == "Right. 1.0 True"


def published(url: str) -> set[str]:
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


def test_every_endpoint_is_documented(reverse: ServerProcess) -> None:
    with server(REVERSE) as plain:
        more = published(reverse.url) - published(plain.url)
    documented = {
        code(row[0]) for heading in ("### Over HTTP", "## MCP") for row in cells("also.md", heading)
    }
    assert {each for each in documented if each.partition(" ")[0] in ("GET", "POST", "DELETE")} == more
