from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from ..support.author_log import Log
from ..support.server_process import ServerProcess, server
from ..support.session_api import Api, api_for


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.fixture(scope="module")
def served() -> Iterator[ServerProcess]:
    """One server with two workers for a whole file; tests leave it as they found it."""
    with server(workers=2) as found:
        yield found


@pytest_asyncio.fixture
async def api(served: ServerProcess) -> AsyncIterator[Api]:
    async with api_for(served.url) as found:
        yield found
