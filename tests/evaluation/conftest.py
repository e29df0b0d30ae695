"""One server of environments, and one scripted endpoint, for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.evaluation.endpoint import Endpoint, serve_endpoint
from tests.interop.servers import ROOT, serve

WORLDS = str(ROOT / "tests" / "evaluation" / "worlds.py")
NAMES = ("Sums", "Pictures", "Essay", "Faulty", "Moody", "Odd", "Slow", "Hall")


@dataclass(frozen=True)
class World:
    """A server, and the folder that its environments write to."""

    url: str
    diary: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    diary = tmp_path_factory.mktemp("diary")
    variables = {"EVALUATION_DIARY": str(diary), "ORSAY_JOURNAL": "off", "PYTHONPATH": str(ROOT)}
    targets = [f"{WORLDS}:{name}" for name in NAMES]
    with serve(*targets, options=["--workers", "1"], env=variables) as server:
        yield World(server.url, diary)


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
