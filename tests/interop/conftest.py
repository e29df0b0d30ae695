from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from .player import Player, Players
from .servers import BUNDLED, KIT, ServerProcess, serve
from .venvs import OPENREWARD, ORS

CLIENTS = [*(("openreward", version) for version in OPENREWARD), ("ors-sdk", ORS)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The first test that needs a peer also installs it.
    for item in items:
        if "interop" in item.path.parts:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def orsay_server() -> Iterator[ServerProcess]:
    """The bundled environments, echo being the default, and the kit, in worker processes."""
    with serve(*BUNDLED, *KIT) as server:
        yield server


@pytest.fixture(scope="session")
def players(orsay_server: ServerProcess) -> Iterator[Players]:
    with ExitStack() as stack:
        yield Players(orsay_server.url, stack)


@pytest.fixture(params=CLIENTS, ids=lambda client: "-".join(client))
def client(request: pytest.FixtureRequest, players: Players) -> Player:
    """One released client after the other."""
    package, version = request.param
    return players.get(package, version)
