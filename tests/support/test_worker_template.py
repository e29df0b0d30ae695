"""A forked worker is what a fresh process is, to the code that it runs and to the server."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.server_process import children, is_running, server
from tests.support.session_api import api_for
from tests.support.waiting import until
from tests.support.worker_template import SEED, is_template

pytestmark = pytest.mark.process

SOURCE = """
import json, os, resource, signal, stat, sys, threading
from orsay import Environment, tool

class Worker(Environment):
    splits = {"train": [{}]}

    def prompt(self):
        return "go"

    @tool
    def facts(self) -> str:
        "What this process is."
        return json.dumps({
            "arguments": sys.argv,
            "descriptors": [stat.S_IFMT(os.fstat(each).st_mode) for each in range(3)],
            "folder": os.getcwd(),
            "group": os.getpgid(0) == os.getsid(0) == os.getpid(),
            "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
            "main": sys.modules["__main__"].__spec__.name,
            "path": sys.path,
            "signals": [str(signal.getsignal(each)) for each in signal.valid_signals() - {signal.SIGINT}],
            "streams": [(each.encoding, each.errors) for each in (sys.stdout, sys.stderr)],
            "threads": sorted(each.name.partition("(")[2] for each in threading.enumerate()),
            "variables": dict(os.environ),
        })

    @tool
    def parent(self) -> str:
        "Process id of the parent."
        return str(os.getppid())
"""


async def facts(path: Path, seed: str) -> dict[str, Any]:
    with server(f"{path}:Worker", hash_seed=seed) as found:
        async with api_for(found.url) as api:
            await api.create("worker")
            assert int((await api.call("parent")).text) == found.pid
            told: dict[str, Any] = json.loads((await api.call("facts")).text)
            for name in ("PYTHONHASHSEED", "ORSAY_HASH_SEED"):
                assert told["variables"].pop(name) == seed
            assert told["variables"].pop("ORSAY_SANDBOXES_URL") == found.url
            return told


async def test_a_forked_worker_is_what_a_fresh_process_is(tmp_path: Path) -> None:
    path = tmp_path / "workers.py"
    path.write_text(SOURCE)
    assert SEED != "1", "a worker with another seed is a fresh process"
    assert await facts(path, SEED) == await facts(path, "1")


async def test_a_template_and_its_workers_end_with_their_server(tmp_path: Path) -> None:
    path = tmp_path / "workers.py"
    path.write_text(SOURCE)
    with server(f"{path}:Worker", workers=2) as found:
        started = _with_template(found.pid)
        assert len(children(found.pid)) == 2
        assert [is_template(pid) for pid in started].count(True) == 1
        os.kill(found.pid, signal.SIGKILL)
        await until(lambda: not any(is_running(pid) for pid in started))


def _with_template(pid: int) -> list[int]:
    folders = Path(f"/proc/{pid}/task").iterdir()
    return [int(each) for folder in folders for each in (folder / "children").read_text().split()]
