"""The commands that docs/deploy.md shows, run as they are written there, in a copy of what they need.

Before each block of commands the page says, in a comment, ``run by FILE::TEST`` or ``not run: REASON``. A
test that is named takes the blocks that name it, in order. Only what a machine has one of is another in
tests: the address, names of images and of compose projects.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.containers import COMPOSE
from tests.support.documentation import ROOT, Block, blocks
from tests.support.server_process import children

__all__ = ["PAGE", "Commands", "Documented", "Started", "documented"]

PAGE = ROOT / "docs" / "deploy.md"
_SHOWN_BASE = "python:3.12-slim"
RUN_LIMIT_S = 300.0
START_LIMIT_S = 300.0  # some build an image first
STOP_LIMIT_S = 60.0
_NEEDED = ("compose.yaml", "docker", "docs/examples", "envs")
_FILES = "docs/examples/deploy"
_NOTE = re.compile(r"<!-- (.*) -->")
_ADDRESS = re.compile(r"Orsay serves .* at (http://\S+)\n")


@dataclass(frozen=True)
class Documented:
    """A block of commands, and what the page says of it: ``run by …``, ``not run: …``, or nothing."""

    block: Block
    note: str

    def __str__(self) -> str:
        return str(self.block)

    @property
    def test(self) -> str:
        """``FILE::TEST`` that runs it; empty when nobody does."""
        return self.note.removeprefix("run by ") if self.note.startswith("run by ") else ""

    @property
    def reason(self) -> str:
        """Why it is not run; empty when it is."""
        return self.note.removeprefix("not run: ") if self.note.startswith("not run: ") else ""


def documented() -> Iterator[Documented]:
    """Every block of commands of the page."""
    lines = PAGE.read_text().splitlines()
    for block in blocks():
        if block.page == PAGE and block.language == "bash":
            found = _NOTE.fullmatch(lines[block.line - 2])
            yield Documented(block, found[1] if found else "")


class Started:
    """A block that goes on running: a server in the foreground of a terminal."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._found = threading.Event()
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self.url = ""
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self._lines)

    def wait_for_url(self) -> None:
        assert self._found.wait(START_LIMIT_S) and self.url, self.output

    def hang_up(self) -> None:
        """Send SIGHUP to the server."""
        (server,) = (pid for pid in (self._process.pid, *children(self._process.pid)) if _serves(pid))
        os.kill(server, signal.SIGHUP)

    def stop(self) -> None:
        """Ctrl-C: a terminal sends it to all that the block started. Waits until everything has ended."""
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(STOP_LIMIT_S)
        self._reader.join(STOP_LIMIT_S)
        assert not self._reader.is_alive(), "something that it started goes on"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            if found := _ADDRESS.fullmatch(line):
                self.url = found[1]
                self._found.set()
        self._found.set()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def _serves(pid: int) -> bool:
    """Whether this process is ``orsay serve``, rather than the shell that started it."""
    return b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


class Commands:
    """The blocks of one test, to be run in the order of the page."""

    def __init__(self, test: str, folder: Path) -> None:
        self._left = [each.block for each in documented() if each.test == test]
        assert self._left, f"{PAGE.name} has no block that says: run by {test}"
        self._stand_ins: dict[str, str] = {}
        self.folder = _copied(folder / "copy")
        self._programs = _programs(folder / "bin")

    @property
    def left(self) -> Sequence[Block]:
        """Blocks that have not been run yet."""
        return self._left

    def here(self, shown: str, stand_in: str) -> None:
        """What the page and the files it shows call ``shown`` is ``stand_in`` here."""
        files = {path: path.read_text() for path in (self.folder / _FILES).iterdir()}
        texts = [block.code for block in self._left]
        assert any(shown in text for text in (*texts, *files.values())), f"nothing shows {shown!r}"
        self._stand_ins[shown] = stand_in
        for path, text in files.items():
            path.write_text(text.replace(shown, stand_in))

    def build_on(self, base: str) -> None:
        """Let environments be built on an image that this engine has."""
        for path in (self.folder / "envs").glob("*/Dockerfile"):
            path.write_text(path.read_text().replace(f"ARG BASE={_SHOWN_BASE}", f"ARG BASE={base}"))

    def run(self, **variables: str) -> str:
        """Run the next block to its end, which must be a good one, and return what it prints."""
        code = self._next()
        done = subprocess.run(
            self._bash(code),
            cwd=self.folder,
            env=self._environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def started(self, **variables: str) -> Iterator[Started]:
        """The next block while it runs, as soon as it says where it serves."""
        started = Started(
            subprocess.Popen(
                self._bash(self._next()),
                cwd=self.folder,
                env=self._environment({"ORSAY_PORT": "0", **variables}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        try:
            started.wait_for_url()
            yield started
            started.stop()
        finally:
            started.kill()

    def _next(self) -> str:
        code = self._left.pop(0).code
        for shown, stand_in in self._stand_ins.items():
            code = code.replace(shown, stand_in)
        return code

    def _bash(self, code: str) -> list[str]:
        return ["bash", "-eu", "-o", "pipefail", "-c", code]

    def _environment(self, variables: dict[str, str]) -> dict[str, str]:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("ORSAY_", "COMPOSE_"))
        }
        path = os.pathsep.join([str(self._programs), str(Path(sys.executable).parent), os.environ["PATH"]])
        return {**clean, "PATH": path, "PYTHONUNBUFFERED": "1", "DOCKER_BUILDKIT": "0", **variables}


def _copied(folder: Path) -> Path:
    """What the commands need of the repository."""
    for name in _NEEDED:
        place = folder / name
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place)
    return folder


def _programs(folder: Path) -> Path:
    """``docker compose`` for machines that have compose 1.29 only."""
    folder.mkdir()
    if COMPOSE == ["docker-compose"]:
        program = folder / "docker"
        program.write_text(
            '#!/bin/sh\n[ "$1" != compose ] || { shift; exec docker-compose "$@"; }\n'
            f'exec {shutil.which("docker")} "$@"\n'
        )
        program.chmod(0o755)
    return folder
