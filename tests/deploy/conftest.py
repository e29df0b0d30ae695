from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documentation import ROOT

from .commands import Commands


@pytest.fixture
def commands(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Commands]:
    """The blocks of docs/deploy.md that say they are run by this test. It has to run all of them."""
    found = Commands(f"{request.path.relative_to(ROOT)}::{request.function.__name__}", tmp_path)
    yield found
    assert not found.left, f"not run: {', '.join(map(str, found.left))}"
