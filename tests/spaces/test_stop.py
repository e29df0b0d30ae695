"""A container that is stopped before its environments are loaded ends at once, in order."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ..support.server_process import ServerProcess, children
from ..support.waiting import until

pytestmark = pytest.mark.process

SLOW = """\
import pathlib, time
pathlib.Path({mark!r}).write_text("")
time.sleep(60)
"""


async def test_a_signal_while_the_environments_load_ends_the_server(tmp_path: Path) -> None:
    """The first process of a container gets no signal that it did not ask for, so it asks first."""
    mark, source = tmp_path / "loading", tmp_path / "slow.py"
    source.write_text(SLOW.format(mark=str(mark)))
    starting = ServerProcess([f"{source}:Slow", "--port", "0"], {"ORSAY_LOG_FORMAT": "json"})
    try:
        await until(mark.exists)
        workers = children(starting.pid)
        starting.signal(signal.SIGTERM)
        assert starting.wait(20) == 0, starting.everything
        assert starting.events("stopped_while_starting")
        assert workers and not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    finally:
        starting.end()
