"""One server of environments, and one scripted endpoint, for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.servers import ROOT, serve
from tests.support.chat_endpoint import Endpoint, serve_endpoint

ENVIRONMENTS = str(ROOT / "tests" / "evaluation" / "environments.py")
NAMES = ("Sums", "Pictures", "Essay", "Faulty", "Moody", "Odd", "Slow", "Hall")


@dataclass(frozen=True)
class EnvServer:
    """A server, and the folder that its environments write to."""

    url: str
    diary: Path


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    diary = tmp_path_factory.mktemp("diary")
    variables = {"EVALUATION_DIARY": str(diary), "ORSAY_JOURNAL": "off", "PYTHONPATH": str(ROOT)}
    targets = [f"{ENVIRONMENTS}:{name}" for name in NAMES]
    with serve(*targets, options=["--workers", "1"], env=variables) as server:
        yield EnvServer(server.url, diary)


@pytest.fixture(scope="module")
def _endpoint() -> Iterator[Endpoint]:
    with serve_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(_endpoint: Endpoint) -> Endpoint:
    """With nothing of an earlier test."""
    _endpoint.requests.clear()
    _endpoint.keys.clear()
    _endpoint.most_at_once = 0
    return _endpoint
