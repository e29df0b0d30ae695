"""Servers of the bridge's own environments, and what those wrote into their diary."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.server_process import ServerProcess, children, variables_of
from tests.support.servers import ROOT

__all__ = ["HERE", "TRAINING", "Diary", "EnvServer", "busy_workers", "kill_worker", "serve_environments"]

TRAINING = [
    pytest.mark.filterwarnings(f"ignore::{category}")
    for category in ("FutureWarning", "DeprecationWarning", "UserWarning")
]
"""Marks of tests that train: what torch, transformers and TRL say of each other is not ours."""

HERE = ROOT / "tests" / "bridge"
ENVIRONMENTS = Path(__file__).with_name("bridge_environments.py")


class Diary:
    """What the environments wrote down, of one server."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, event: str | None = None, **fields: Any) -> list[dict[str, Any]]:
        """Lines of that event and with those fields, in order."""
        if not self.path.exists():
            return []
        whole, _, _ = self.path.read_text().rpartition("\n")  # the last line may be half written
        found = [json.loads(line) for line in whole.splitlines()]
        return [
            line
            for line in found
            if (event is None or line["event"] == event)
            and all(line.get(key) == value for key, value in fields.items())
        ]

    def open_sessions(self) -> set[str]:
        """Sessions that were set up and not torn down."""
        return {line["key"] for line in self.lines("setup")} - {
            line["key"] for line in self.lines("teardown")
        }

    def calls(self) -> Counter[str]:
        """How often each tool was called."""
        return Counter(line["tool"] for line in self.lines("call"))

    def clear(self) -> None:
        self.path.write_text("")


class EnvServer:
    """A server process with its diary."""

    def __init__(self, process: ServerProcess, diary: Diary) -> None:
        self.process, self.diary = process, diary
        self.url = process.url
        self.port = int(self.url.rsplit(":", 1)[1])


@contextmanager
def serve_environments(
    folder: Path,
    *names: str,
    port: int = 0,
    workers: int = 1,
    target: str | None = None,
    **settings: Any,
) -> Iterator[EnvServer]:
    """``orsay serve`` with these classes of ``bridge_environments.py``; the first is the default."""
    targets = [target] if target else [f"{ENVIRONMENTS}:{name}" for name in names]
    diary = Diary(folder / "diary.jsonl")
    process = ServerProcess(
        ["--port", str(port), *targets],
        {
            "ORSAY_WORKERS": str(workers),
            "ORSAY_LOG_FORMAT": "json",
            "BRIDGE_DIARY": str(diary.path),
            "PYTHONPATH": str(ROOT),
            **variables_of(settings),
        },
    )
    try:
        process.wait_for_url()
        yield EnvServer(process, diary)
    finally:
        process.end()


def busy_workers(env_server: EnvServer) -> Sequence[int]:
    """Processes that hold a session now, by the diary."""
    alive, held = set(_descendants(env_server.process.pid)), env_server.diary.open_sessions()
    pids = [line["pid"] for line in env_server.diary.lines("setup") if line["key"] in held]
    return [pid for pid in dict.fromkeys(pids) if pid in alive]


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _descendants(child)


def kill_worker(env_server: EnvServer) -> bool:
    """Kill one worker that holds a session; whether there was one."""
    pids = busy_workers(env_server)
    with suppress(ProcessLookupError):
        for pid in pids[:1]:
            os.kill(pid, signal.SIGKILL)
    return bool(pids)
