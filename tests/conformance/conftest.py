from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from orsay.conformance import Target

from ..interop.servers import KIT, ServerProcess, serve

RUNTIMES = ("local", "process")
ENVIRONMENTS = tuple(
    f"tests/conformance/environments.py:{name}" for name in ("Busy", "Fragile", "Huge", "Named", "Odd")
)


@pytest.fixture(scope="session", params=RUNTIMES)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Every environment of these tests with default settings, once on each runtime."""
    with serve(*KIT, *ENVIRONMENTS, runtime=request.param, options=["--workers", "2"]) as running:
        yield running


@pytest_asyncio.fixture
async def target(server: ServerProcess) -> AsyncIterator[Target]:
    """The kit."""
    async with Target.open(server.url) as opened:
        yield opened
