"""``Server([...]).run()`` in a script of one's own, as users of other ORS packages write it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.process

SCRIPT = '''
from orsay import Environment, Server, tool

class Tiny(Environment):
    """Says hello."""

    splits = {"train": [{"id": 0}]}

    def prompt(self) -> str:
        return "say hello"

    @tool
    def hello(self) -> str:
        """Say hello."""
        return "hello"

'''


@pytest.mark.conformance("C2")
def test_a_script_serves_a_class_of_its_own_in_worker_processes(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT + 'if __name__ == "__main__":\n    Server([Tiny]).run(port=0, workers=1)\n')
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        assert httpx.get(f"{url}/list_environments", timeout=20).json() == ["tiny"]
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.conformance("C2")
def test_a_script_that_forgets_to_guard_its_run_gets_the_fix(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(SCRIPT + "Server([Tiny]).run(port=0, workers=1)\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert 'put the call under if __name__ == "__main__":' in done.stderr
