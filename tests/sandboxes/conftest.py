from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from orsay.sandboxes.sandbox import Sandbox

from ..support.bubblewrap import bubblewrap_sandbox
from ..support.sandboxes import bare_agent, docker_sandbox


@pytest_asyncio.fixture(
    params=[
        pytest.param("agent", marks=pytest.mark.process),
        pytest.param("bubblewrap", marks=pytest.mark.process),
        pytest.param("docker", marks=pytest.mark.engine),
    ]
)
async def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sandbox]:
    """A sandbox of each kind. The bare agent is the program alone, without isolation."""
    match request.param:
        case "agent":
            made = bare_agent(tmp_path)
        case "bubblewrap":
            made = bubblewrap_sandbox(tmp_path)
        case _:
            made = docker_sandbox()
    async with made as found:
        yield found


@pytest_asyncio.fixture
async def folder(sandbox: Sandbox) -> AsyncIterator[str]:
    """An empty folder in it."""
    path = (await sandbox.run("mktemp -d")).output.decode().strip()
    yield path
    if sandbox.gone is None:
        await sandbox.run(["rm", "-rf", path])
