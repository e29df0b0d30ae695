from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from orsay.runtimes.docker.engine import Engine

from ..support.author_log import Log
from ..support.docker_runtime import OwnServer, own_server


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    async with await Engine.connect() as found:
        yield found


@pytest_asyncio.fixture
async def own(engine: Engine) -> AsyncIterator[OwnServer]:
    async with own_server(engine) as server:
        yield server
