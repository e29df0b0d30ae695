"""The targets of a file behind a real server, in both runtimes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from orsay_client import Client

from tests.support.server_process import server


@pytest.fixture(scope="module", params=["process", "local"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of a server of the file's ``TARGETS``."""
    targets = request.module.TARGETS
    with server(*targets, runtime=request.param, workers=2) as running, Client(running.url) as client:
        yield client
