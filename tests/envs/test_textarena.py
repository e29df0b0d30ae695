"""Runs the tests of envs/textarena that need the package textarena, in a virtual environment that has it.

The tests of the repository run without that package; there those files skip themselves.
"""

import os
import subprocess
from pathlib import Path

import pytest

from ..interop.venvs import TEXTARENA, python_for

pytestmark = pytest.mark.process

PROJECT = Path(__file__).parents[2] / "envs" / "textarena"
NEEDING = sorted(
    path.name for path in (PROJECT / "tests").glob("test_*.py") if "importorskip" in path.read_text()
)


@pytest.mark.timeout(900)  # makes the virtual environment, unless there is one
@pytest.mark.venv
def test_games_are_played_where_the_package_is_installed() -> None:
    python = python_for("textarena", TEXTARENA)
    files = [f"tests/{name}" for name in NEEDING]
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    # The options of this run are not for that one.
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(
        command, cwd=PROJECT, env=variables, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[-6000:]
    assert "skipped" not in done.stdout


def test_the_files_that_need_the_package_are_known() -> None:
    assert NEEDING == ["test_textarena_env.py", "test_textarena_games.py", "test_textarena_opponents.py"]
