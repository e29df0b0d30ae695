"""docs/catalog.md is what scripts/catalog makes of the sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documentation import ROOT, cells

pytestmark = pytest.mark.process

ENVIRONMENT = '''
from openreward import AsyncOpenReward, SandboxBucketConfig, SandboxSettings
from openreward.environments import Environment

class One(Environment):
    """It needs nearly everything."""

    def __init__(self, task, secrets={}):
        import openai

        self.judge = openai.AsyncClient(api_key=secrets["openai_api_key"])
        bucket = SandboxBucketConfig("/data")
        SandboxSettings("Me/One", "me/tools:1", "1:2", bucket_config=bucket)
'''


def catalog(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "catalog.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_page_is_up_to_date() -> None:
    assert catalog("--check").returncode == 0, "run ./scripts/catalog"


def test_the_groups_of_the_catalogue_are_all_of_it() -> None:
    counts = [int(row[1]) for row in cells("catalog.md", "## The public catalogue")]
    assert sum(counts) == 93
    assert (counts[0], sum(counts[:4]), sum(counts) - counts[4]) == (17, 57, 82)


def test_the_page_of_other_environments(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "server.py").write_text(ENVIRONMENT)
    (tmp_path / "two.py").write_text("from orsay import Environment\nclass Two(Environment):\n    pass\n")
    (tmp_path / "notes").mkdir()
    shown = catalog(str(tmp_path)).stdout
    assert "| one | `/data` (Me/One) | `openai` | `me/tools:1` |  | `openai_api_key` |\n" in shown
    assert "| two.py |  |  |  |  |  |\n" in shown and "notes" not in shown
    assert "By need: data and model and sandbox 1, nothing 1." in shown


def test_a_folder_that_is_not_there() -> None:
    ended = catalog("no/such/folder")
    assert ended.returncode == 2 and "no folder" in ended.stderr
