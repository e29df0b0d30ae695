"""What a program of a fork server spawns has what the server imported, and nothing of the program."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from .forkserver import ForkServer

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="such processes are fresh elsewhere"),
]

PROGRAM = """
import multiprocessing, os, sys

def seen(queue, value):
    value.value += 1
    here = [name for name in ("graphlib", "colorsys") if name in sys.modules]
    print("spawned", __name__, os.getcwd(), flush=True)
    queue.put((here, os.environ["GIVEN"], os.getppid()))
    raise SystemExit(7)

if __name__ == "__main__":
    import graphlib

    os.environ["GIVEN"] = "later"
    context = multiprocessing.get_context("spawn")
    queue, value = context.Queue(), context.Value("i", 4)
    for _ in range(2):
        process = context.Process(target=seen, args=(queue, value))
        process.start()
        found = queue.get(timeout=20)
        process.join(20)
        print(found == (["colorsys"], "later", os.getpid()), process.exitcode, value.value, flush=True)
"""


def test_it_reads_its_work_from_the_pipe_and_is_a_child_of_the_program(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    server = ForkServer("colorsys", teardown=False)
    try:
        done = server.before("tests.support.spawned:split_off").run(
            [str(script)], cwd=tmp_path, env={**os.environ, "GIVEN": "first"}, timeout=60
        )
    finally:
        server.close()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"spawned __mp_main__ {tmp_path}",
        "True 7 5",
        f"spawned __mp_main__ {tmp_path}",
        "True 7 6",
    ]
    assert done.stderr == ""
