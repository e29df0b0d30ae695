"""Requests of the console's pages to the server, with the time of each answer over HTTP."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from .pages_journal import Recorded
from .processes import ProcessTree
from .report import Run

__all__ = ["Ask", "asks", "forget_files", "percentile", "time_asks"]

_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, and the page that makes it."""

    page: str
    name: str
    path: str

    @property
    def title(self) -> str:
        return f"{self.page}: {self.name}"


def asks(there: Recorded, evaluations: Sequence[str]) -> list[Ask]:
    """All requests of the pages, without duplicates; and the most expensive filters."""
    of_task = {"environment": there.environment, "task": there.task}
    listed: list[tuple[str, str, dict[str, Any]]] = [
        ("the newest", "trajectories", {}),
        ("half way down", "trajectories", {"before": there.middle}),
        ("of an environment", "trajectories", {"environment": there.environment}),
        ("of a run", "trajectories", {"run": there.run}),
        ("of a step of a run", "trajectories", {"run": there.run, "step": 50}),
        ("of the first step", "trajectories", {"step": 0}),
        ("of a task", "trajectories", of_task),
        ("of a split that none has", "trajectories", {"split": "nowhere"}),
        ("with a fault", "trajectories", {"fault": "any"}),
        ("with a fault that none has", "trajectories", {"fault": "overloaded"}),
        ("with a reward that none has", "trajectories", {"reward_min": 7}),
        ("not finished", "trajectories", {"finished": "false"}),
        ("of the first minute", "trajectories", {"until": there.first_at + 60}),
        ("a word of all", "trajectories", {"text": "karma"}),
        ("words that are rare together", "trajectories", {"text": '"karma mango fjord lotus"'}),
        ("a word of none", "trajectories", {"text": "nowhere"}),
        ("a word of all, a reward of none", "trajectories", {"text": "karma", "reward_min": 7}),
        (
            "a word of all, in the first minute",
            "trajectories",
            {"text": "karma", "until": there.first_at + 60},
        ),
    ]
    found = [
        Ask("environments", "the list", "environments"),
        Ask("live", "faults", "faults"),
        *(Ask("trajectories", name, _path(path, {**query, "limit": 25})) for name, path, query in listed),
        Ask("trajectories", "names of runs", _path("runs", {"limit": 500, "success": 1})),
        Ask("trajectory", "one", f"trajectories/{there.middle}"),
        Ask("trajectory", "one of 500 calls", f"trajectories/{there.long}"),
        Ask("trajectory", "others of its task", _path("trajectories", {**of_task, "limit": 100})),
        Ask("runs", "one over its steps", _path("runs/series", {"run": there.run, "success": 1})),
        Ask("runs", "one over time", _path("runs/series", {"run": there.unlabelled, "success": 1})),
        Ask("tasks", "all", "tasks"),
        Ask("tasks", "of an environment", _path("tasks", {"environment": there.environment})),
        Ask("tasks", "of a run", _path("tasks", {"run": there.run})),
        Ask("evaluations", "the list", _path("evaluations", {"limit": 500})),
    ]
    if evaluations:
        found.append(Ask("evaluations", "one", f"evaluations/{evaluations[0]}"))
    return found


def _path(path: str, query: Mapping[str, Any]) -> str:
    return f"{path}?{urlencode(query)}"


def time_asks(
    kind: str,
    port: int,
    wanted: Sequence[Ask],
    repeat: int,
    *,
    key: str | None,
    trees: Sequence[ProcessTree],
    forget: Callable[[], None],
) -> list[Run]:
    """Each request once with ``forget`` done before, then ``repeat`` times, one after the other.

    ``cpu_ms`` is the CPU time of all processes behind the answer: it hardly depends on other work.
    """
    runs = []
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=_LIMIT_S)) as connection:
        for ask in wanted:
            forget()
            try:
                first, size, sent = _ask(connection, ask.path, key)
                before = sum(tree.cpu_s() for tree in trees)
                times = [_ask(connection, ask.path, key)[0] for _ in range(repeat)]
                cpu_s = sum(tree.cpu_s() for tree in trees) - before
            except (OSError, RuntimeError) as error:
                runs.append(Run(ask.title, kind, 1, {}, failed=str(error)))
                connection.close()
                continue
            result = {
                "first_ms": round(first, 1),
                "median_ms": round(statistics.median(times), 1),
                "p95_ms": round(percentile(times, 0.95), 1),
                "min_ms": round(min(times), 1),
                "cpu_ms": round(cpu_s / repeat * 1000, 1),
                "kilobytes": round(size / 1000, 1),
                "sent_kilobytes": round(sent / 1000, 1),
            }
            runs.append(Run(ask.title, kind, 1, result))
    return runs


def _ask(connection: HTTPConnection, path: str, key: str | None) -> tuple[float, int, int]:
    """Milliseconds, and the bytes of the answer, unpacked and as sent."""
    headers = {"Accept-Encoding": "gzip", **({} if key is None else {"X-API-Key": key})}
    began = time.perf_counter()
    connection.request("GET", f"/console/api/{path}", headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    spent = (time.perf_counter() - began) * 1000
    plain = gzip.decompress(body) if answer.headers.get("content-encoding") == "gzip" else body
    if answer.status != 200:
        raise RuntimeError(f"{answer.status} for {path}: {plain[:200]!r}")
    json.loads(plain)
    return spent, len(plain), len(body)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below this share of them."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def forget_files(files: Iterator[Path] | Sequence[Path]) -> None:
    """Drop the files from the page cache."""
    for path in files:
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
