"""The tutorial is followed as it is written: its files in a folder, its commands in order, its output."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from tests.support.documentation import EXAMPLES, ROOT, blocks

pytest.importorskip("trl", reason="needs the extra 'trl'")

from tests.support.servers import orsay_programs
from tests.support.trainers import trainers

LIMIT_S = 150
pytestmark = [pytest.mark.process, pytest.mark.timeout(LIMIT_S + 30)]

SHOWN_URL = "http://127.0.0.1:8080"
PAGE = [block for block in blocks() if block.page == ROOT / "docs" / "tutorial.md"]
OUTPUTS = {
    before.code.strip(): after.code
    for before, after in pairwise(PAGE)
    if before.language == "bash" and after.language == "text"
}
SERVE, *COMMANDS = [
    block.code.strip() for block in PAGE if block.language == "bash" and "pip install" not in block.code
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("treasure")
    for path in (EXAMPLES / "tutorial").glob("*.py"):
        shutil.copy(path, made)
    return made


@pytest.fixture(scope="module")
def variables() -> Mapping[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ORSAY_")}
    return {
        **inherited,
        "PATH": path,
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "80",
    }


@pytest.fixture(scope="module")
def url(folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """The server of the tutorial, which is the installed program, on a port of its own."""
    process = subprocess.Popen(
        [*SERVE.split(), "--port", "0", "--workers", "1"],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = line.split()[-1]
        assert line.replace(address, SHOWN_URL) == OUTPUTS[SERVE]
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)


@pytest.fixture(scope="module")
def printed(url: str, folder: Path, variables: Mapping[str, str]) -> Mapping[str, str]:
    """What each command prints, with the address that the page shows. They build on each other.

    Nothing depends on the first, which mostly waits. All are forked.
    """
    programs = orsay_programs()
    train = folder / "train.py"
    train.write_text(train.read_text().replace(SHOWN_URL, url))

    def end(command: str) -> str:
        program, _, filters = command.replace(SHOWN_URL, url).partition(" | ")
        name, *arguments = shlex.split(program)
        fork = trainers() if "train.py" in arguments else programs
        whole = [*(["-m", "orsay"] if name == "orsay" else []), *arguments]
        done = fork.run(whole, timeout=LIMIT_S, cwd=folder, env=variables)
        assert done.returncode == 0, f"{command}: {done.stderr[-4000:]}"
        return filtered(done.stdout, filters)

    def filtered(shown: str, filters: str) -> str:
        if filters:
            shown = subprocess.run(
                ["/bin/bash", "-c", filters], input=shown, capture_output=True, text=True, check=True
            ).stdout
        return shown.replace(url, SHOWN_URL)

    check, *others = COMMANDS
    assert check.startswith("orsay check ")
    with ThreadPoolExecutor(1) as pool:
        checking = pool.submit(end, check)
        shown = {command: end(command) for command in others}
        return {check: checking.result(), **shown}


def comparable(text: str) -> list[str]:
    """Lines without widths, dates and durations."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"([ ─])\1+", r"\1", line).strip()
        line = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d|\d{8}-\d{6}", "<time>", line)
        if line.startswith(("│ episode │", "│ took │")):
            line = re.sub(r"[\d.]+", "#", line)
        lines.append(line)
    return lines


@pytest.mark.parametrize("command", [command for command in OUTPUTS if command != SERVE])
def test_a_command_prints_what_the_page_shows(command: str, printed: Mapping[str, str]) -> None:
    assert comparable(printed[command]) == comparable(OUTPUTS[command])


def test_the_console_shows_what_was_played(url: str, printed: Mapping[str, str]) -> None:
    assert printed
    assert "text/html" in httpx.get(f"{url}/console").headers["content-type"]
    runs = {run["run"]: run["episodes"] for run in httpx.get(f"{url}/console/api/runs").json()}
    assert {name: runs[name] for name in ("chance", "search", "first-training")} == {
        "chance": 60,
        "search": 15,
        "first-training": 4,
    }


def test_every_file_is_on_the_page() -> None:
    shown = {Path(block.file).name: block for block in PAGE if block.file}
    for path in (EXAMPLES / "tutorial").glob("*.py"):
        assert shown[path.name].code == path.read_text(), f"docs/tutorial.md shows only a part of {path.name}"
