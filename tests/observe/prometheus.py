"""Prometheus itself: Debian's, in a process of its own, with a configuration that we ship."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

__all__ = ["Prometheus", "Series", "prometheus", "promtool"]

START_S = 60.0
_ADDRESS = re.compile(r'msg="Listening on" address=(127\.0\.0\.1:\d+)')
Series = list[tuple[Mapping[str, str], list[float]]]


def binary(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here; Debian's package prometheus has it")
    return found


def promtool(*arguments: str, given: str = "") -> str:
    """What it says; it must find nothing wrong."""
    done = subprocess.run(
        [binary("promtool"), *arguments], input=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """A server that scrapes, and answers as Grafana asks."""

    def __init__(self, config: Path, data: Path) -> None:
        self._process = subprocess.Popen(
            [
                binary("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={data}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._url = ""
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._http = httpx.Client(timeout=60)

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            if found := _ADDRESS.search(line):
                self._url = f"http://{found.group(1)}/api/v1"
                self._listens.set()
        self._listens.set()

    def wait_for_url(self) -> None:
        assert self._listens.wait(START_S) and self._url, "".join(self.log)

    def ask(self, path: str, **parameters: Any) -> Any:
        """The data of an answer that is no error."""
        answer = self._http.get(f"{self._url}/{path}", params=parameters).json()
        assert answer["status"] == "success" and not answer.get("warnings"), (parameters, answer)
        return answer["data"]

    def now(self, query: str, at: float | None = None) -> Series:
        """The value of each series now, or ``at`` that time."""
        found = self.ask("query", query=query, time=at or time.time())
        assert found["resultType"] == "vector", query
        return [(each["metric"], [float(each["value"][1])]) for each in found["result"]]

    def until(self, query: str, at: float) -> Series:
        """The values of each series in the five minutes before, in steps of a second."""
        found = self.ask("query_range", query=query, start=at - 300, end=at, step=1)
        return [(each["metric"], [float(value) for _, value in each["values"]]) for each in found["result"]]

    def wait_for(self, query: str) -> None:
        """Until that has a result."""
        end = time.monotonic() + 60
        while not self.now(query):
            assert time.monotonic() < end, (query, self.ask("targets"))
            time.sleep(0.05)

    def end(self) -> None:
        self._http.close()
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)
        self._reader.join(30)
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextmanager
def prometheus(config: Path, data: Path) -> Iterator[Prometheus]:
    running = Prometheus(config, data)
    try:
        running.wait_for_url()
        yield running
    finally:
        running.end()
