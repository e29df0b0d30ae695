from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from .player import Player, player
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


class Players:
    """Released clients connected to one server, each started when first asked for."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._url, self._stack = url, stack
        self._started: dict[tuple[str, str], Player] = {}

    def get(self, package: str, version: str) -> Player:
        if (package, version) not in self._started:
            started = self._stack.enter_context(player(package, version, self._url))
            self._started[package, version] = started
        return self._started[package, version]


@pytest.fixture(scope="session")
def players(orsay_server: ServerProcess) -> Iterator[Players]:
    with ExitStack() as stack:
        yield Players(orsay_server.url, stack)


@pytest.fixture(params=CLIENTS, ids=lambda client: "-".join(client))
def client(request: pytest.FixtureRequest, players: Players) -> Player:
    """One released client after the other."""
    package, version = request.param
    return players.get(package, version)
