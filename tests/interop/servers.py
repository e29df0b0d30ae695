"""Servers as separate processes, ours and released ones, on a free port, stopped when the test is done."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

__all__ = ["BUNDLED", "KIT", "ROOT", "RunningServer", "released", "serve"]

ROOT = Path(__file__).parents[2]
KIT = ("tests/interop/kit.py:Kit", "tests/interop/kit.py:Second")
BUNDLED = (
    "echo_env.env:EchoEnvironment",
    "guess_env.env:GuessEnvironment",
    "arithmetic_env.env:ArithmeticEnvironment",
)

_URL = re.compile(r"http://[\w.\-]+:\d+")
_START_LIMIT_S = 40.0
_STOP_LIMIT_S = 20.0


@dataclass
class RunningServer:
    """A server process that answers at ``url``; ``output`` is what it printed so far."""

    url: str
    output: list[str] = field(default_factory=list)


@contextmanager
def serve(
    *targets: str,
    runtime: str = "process",
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    paths: Sequence[Path] = (),
) -> Iterator[RunningServer]:
    """Orsay with a journal, serving ``targets`` on a free port; ``paths`` are importable there too."""
    command = [sys.executable, "-m", "orsay", "serve", *targets, "--host", "127.0.0.1", "--port", "0"]
    found = [*paths, *(ROOT / "envs" / name for name in ("echo", "guess", "arithmetic"))]
    named = [*map(str, found), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(named)}
    with tempfile.TemporaryDirectory() as folder:
        variables["ORSAY_JOURNAL"] = str(Path(folder, "journal.db"))
        command += ["--runtime", runtime, *options]
        with _running(command, {**variables, **(env or {})}) as server:
            yield server


@contextmanager
def released(python: Path, package: str) -> Iterator[RunningServer]:
    """The server of a released package, hosting the environments of ``kit.py``."""
    script = Path(__file__).with_name("serve_released.py")
    with _running([str(python), str(script), package], {}) as server:
        yield server


@contextmanager
def _running(
    command: Sequence[str],
    env: Mapping[str, str],
) -> Iterator[RunningServer]:
    ours, theirs = os.pipe()
    stream = os.fdopen(ours, encoding="utf-8", errors="replace")
    try:
        variables = {**os.environ, "PYTHONUNBUFFERED": "1", **env}
        process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=theirs, stderr=theirs)
    finally:
        os.close(theirs)
    output: list[str] = []
    urls: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(stream, output, urls), daemon=True)
    reader.start()
    try:
        try:
            url = urls.get(timeout=_START_LIMIT_S)
        except queue.Empty:
            url = None
        if url is None:
            raise RuntimeError(f"{' '.join(command)} did not start:\n{''.join(output)}")
        yield RunningServer(url, output)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(_STOP_LIMIT_S)
        stream.close()


def _read(stream: IO[str], output: list[str], urls: queue.Queue[str | None]) -> None:
    told = False
    for line in stream:
        output.append(line)
        found = _URL.search(line)
        if found and not told:
            told = True
            urls.put(found.group())
    urls.put(None)
