from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.server_process import ServerProcess, server

ENVIRONMENTS = Path(__file__).parents[1] / "support" / "protocol_environments.py"
TARGETS = ("guess_env.env:GuessEnvironment", f"{ENVIRONMENTS}:Scripted", f"{ENVIRONMENTS}:Broken")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The first test that needs a released client also installs it.
    for item in items:
        if "protocols" in item.path.parts:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session", params=["process", "local"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def served() -> Iterator[ServerProcess]:
    """Guess, which is the first, and two scripted ones, for clients of every kind."""
    with server(*TARGETS, also="openenv,mcp", idle_limit_s=900, workers=2) as found:
        yield found


@pytest.fixture(scope="session")
def served_on(runtime: str) -> Iterator[ServerProcess]:
    """The same on either runtime."""
    with server(*TARGETS, also="openenv,mcp", runtime=runtime, workers=2) as found:
        yield found
