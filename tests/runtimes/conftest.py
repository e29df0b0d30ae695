from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from orsay.runtimes.base import Runtime

from ..support.author_log import Log
from ..support.engine import needs_engine
from ..support.runtimes import RUNTIMES, running_runtime

PARAMS = [pytest.param(name, marks=needs_engine if name == "docker" else ()) for name in RUNTIMES]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest_asyncio.fixture(params=PARAMS, scope="module", loop_scope="module")
async def runtime(request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    """Each runtime in turn, one for a whole file: a test that wrecks it belongs in another file."""
    async with running_runtime(request.param) as found:
        yield found
