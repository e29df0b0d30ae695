"""A test that uses what it is not marked for fails, and the two halves of the suite are the whole."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.process

USES = {
    "process": "subprocess.run(['true'], check=True)",
    "fork": "os.waitpid(os.fork() or os._exit(0), 0)",
    "engine": "connect('/var/run/docker.sock')",
    "browser": "start('/usr/bin/chromium')",
    "node": "start('npm')",
    "driver": "start('/x/playwright/driver/node')",
    "database": "start('/x/bin/postgres')",
    "venv": "venvs.build('no-such-package', '0')",
}
TIER = {"fork": "process", "driver": "browser", "node": "browser"}
HEAD = """
import contextlib, os, socket, subprocess
import pytest
from tests.interop import venvs

def start(program):
    with contextlib.suppress(OSError):
        subprocess.Popen([program, '--version'], executable='/no/such/program')

def connect(path):
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as one:
        one.connect(path)

@pytest.fixture(autouse=True)
def no_folder_is_made(monkeypatch):
    def steps(package, version):
        raise LookupError
    monkeypatch.setattr(venvs, "_steps", steps)
"""


def outcomes(folder: Path, body: str, *options: str) -> tuple[dict[str, str], str]:
    """How each test of a file ended that holds ``body``, and the output of pytest."""
    file = folder / "test_small.py"
    file.write_text(HEAD + textwrap.dedent(body))
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "--rootdir", str(ROOT), "-v", "-rA"]
    plugin = ["-p", "tests.support.tiers", "-p", "no:cacheprovider", *options, str(file)]
    done = subprocess.run(
        [*command, *plugin], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    found = re.findall(r"(?m)^(PASSED|FAILED|ERROR) \S*::(\w+)", done.stdout)
    return {name: outcome for outcome, name in found}, done.stdout


def test_a_test_uses_only_what_it_is_marked_for(tmp_path: Path) -> None:
    tests = [
        f"{mark}def test_{name}_{which}():\n    with contextlib.suppress(LookupError):\n        {use}\n"
        for name, use in USES.items()
        for which, mark in (("bare", ""), ("marked", f"@pytest.mark.{TIER.get(name, name)}\n"))
    ]
    found, output = outcomes(tmp_path, "\n".join(tests))
    wanted = {f"test_{name}_bare": "FAILED" for name in USES}
    assert found == wanted | {f"test_{name}_marked": "PASSED" for name in USES if name != "engine"}, output
    assert "test_engine_marked SKIPPED" in output  # this test's own processes find none
    for name in USES:
        assert f": mark it {TIER.get(name, name)}" in output


def test_a_fixture_counts_for_every_test_that_requests_it(tmp_path: Path) -> None:
    body = """
        @pytest.fixture(scope="module")
        def started():
            return subprocess.run(["true"])

        @pytest.mark.process
        def test_first(started): pass

        def test_second(started): pass

        def test_third(): pass
    """
    found, output = outcomes(tmp_path, body)
    assert found == {"test_first": "PASSED", "test_second": "FAILED", "test_third": "PASSED"}, output


def test_what_a_living_fixture_says_to_the_engine_is_not_the_running_tests(tmp_path: Path) -> None:
    body = """
        @pytest.fixture(scope="module")
        def runtime():
            connect("/var/run/docker.sock")

        def test_before():
            connect("/var/run/docker.sock")

        def test_requests_it(runtime): pass

        def test_runs_meanwhile():
            connect("/var/run/docker.sock")
    """
    found, output = outcomes(tmp_path, body)
    wanted = {"test_before": "FAILED", "test_requests_it": "FAILED", "test_runs_meanwhile": "PASSED"}
    assert found == wanted, output


def test_started_processes_find_no_engine(tmp_path: Path) -> None:
    body = """
        @pytest.mark.process
        def test_it():
            found = subprocess.run(["sh", "-c", "echo $DOCKER_HOST"], capture_output=True, text=True)
            assert "nonexistent" in found.stdout
    """
    assert outcomes(tmp_path, body)[0] == {"test_it": "PASSED"}


def test_what_is_left_out_is_reported_by_tier(tmp_path: Path) -> None:
    body = """
        def test_plain(): pass

        @pytest.mark.database
        def test_one(): pass

        @pytest.mark.engine
        @pytest.mark.venv
        def test_two(): pass
    """
    script = (ROOT / "scripts" / "test").read_text()
    (outside,) = re.findall(r'^outside="(.*)"$', script, re.MULTILINE)
    found, output = outcomes(tmp_path, body, "-m", f"not ({outside})")
    assert found == {"test_plain": "PASSED"}
    assert "left out: 1 engine, 1 database. ./scripts/test --all runs everything" in output
    assert "test_plain" not in outcomes(tmp_path, body, "-m", outside, "--collect-only")[1]
