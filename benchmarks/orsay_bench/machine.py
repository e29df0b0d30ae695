"""Description of the machine, and assignment of its cores to server and generator."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cores() -> tuple[int | None, int | None]:
    """(core of the server, core of the generator); (None, None) when there is only one to share."""
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[1]) if len(allowed) > 1 else (None, None)


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Start processes on this core; they stay there with all their descendants."""
    before = os.sched_getaffinity(0)
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def allow_open_files() -> int:
    """Raise the soft limit of open files to the hard one; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def cpu_model(cpuinfo: str) -> str:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine() or "unknown"


def describe() -> dict[str, str | int]:
    return {
        "cpu": cpu_model(Path("/proc/cpuinfo").read_text()),
        "cores": os.cpu_count() or 1,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "load_average": str(os.getloadavg()[0]),
    }
