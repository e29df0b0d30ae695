"""Files that import TRL are collected by one process and run there; one that crashes is replaced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.process

# Each process that imports a file leaves a line; the file only looks as if it imported torch.
FILE = '''"""
pytest.importorskip("torch")
"""
import os, pathlib

folder = pathlib.Path(__file__).parent
with (folder / "imported").open("a") as log:
    log.write(f"{pathlib.Path(__file__).stem} {os.environ['PYTEST_XDIST_WORKER']}\\n")

def test_one():
    pass

def test_two():
    pass
'''
CRASH = """
def test_crash():
    if not (folder / "crashed").exists():
        (folder / "crashed").touch()
        os._exit(3)
"""


def run(folder: Path) -> tuple[list[tuple[str, str]], str]:
    """Which file was imported by which process, and the last line of pytest."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "tests.support.scheduling"]
    options = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart", "2"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = (folder / "imported").read_text().splitlines()
    return [(line.split()[0], line.split()[1]) for line in lines], done.stdout.strip().rpartition("\n")[2]


def test_one_process_imports_the_files_that_need_trl(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"test_heavy{number}.py").write_text(FILE)
        (tmp_path / f"test_light{number}.py").write_text(FILE.replace("torch", "this"))
    by_fixture = FILE.replace('pytest.importorskip("torch")', "def test(model_server: ServedModel)")
    (tmp_path / "test_heavy3.py").write_text(by_fixture)
    imported, last = run(tmp_path)
    assert re.match(r"14 passed in ", last), last
    heavy = [worker for file, worker in imported if "heavy" in file]
    light = {worker for file, worker in imported if "light" in file}
    assert len(heavy) == 4 and len(set(heavy)) == 1
    assert light == {"gw0", "gw1"}


def test_only_such_files_are_run_too(tmp_path: Path) -> None:
    (tmp_path / "test_heavy.py").write_text(FILE)
    assert re.match(r"2 passed in ", run(tmp_path)[1])


def test_another_process_takes_over_from_one_that_crashed(tmp_path: Path) -> None:
    (tmp_path / "test_heavy0.py").write_text(FILE + CRASH)
    (tmp_path / "test_heavy1.py").write_text(FILE)
    (tmp_path / "test_light.py").write_text(FILE.replace("torch", "this"))
    imported, last = run(tmp_path)
    assert re.match(r"1 failed, 7 passed in ", last), last
    assert len({worker for file, worker in imported if "heavy" in file}) == 2
