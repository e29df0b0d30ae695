"""Server processes for tests: started, found by the URL they print, stopped by signal."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ROOT", "running"]

ROOT = Path(__file__).parents[2]
_URL = re.compile(r"http://[\w.\-]+:\d+")
_LIMIT_S = 40.0


@contextmanager
def running(command: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[str]:
    """The URL of a server process, which lives as long as the block."""
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
    ours, theirs = os.pipe()
    stream = os.fdopen(ours, encoding="utf-8", errors="replace")
    try:
        process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=theirs, stderr=theirs)
    finally:
        os.close(theirs)
    output: list[str] = []
    urls: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in stream:
            output.append(line)
            if found := _URL.search(line):
                urls.put(found.group())
        urls.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        url = urls.get(timeout=_LIMIT_S)
        if url is None:
            raise RuntimeError(f"{' '.join(command)} did not start:\n{''.join(output)}")
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(_LIMIT_S)
        stream.close()
