from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest
import structlog
from orsay.logs import LogWriter, configure, get_logger


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)


class Stuck(io.StringIO):
    """A pipe that nobody reads until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def write(self, text: str) -> int:
        self.gate.wait(10)
        return super().write(text)


def test_a_log_that_is_no_terminal_is_json() -> None:
    stream = io.StringIO()
    writer = configure("info", "auto", stream)
    get_logger("orsay.test").info("happened", number=1, text="ünï")
    get_logger("orsay.test").debug("hidden")
    logging.getLogger("a.library").warning("said %s", "this")
    try:
        raise ValueError("kept")
    except ValueError:
        get_logger("orsay.test").exception("failed")
    writer.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["happened", "library", "failed"]
    assert lines[0]["number"] == 1 and "ünï" in stream.getvalue()
    assert lines[1]["message"] == "said this" and "ValueError: kept" in lines[2]["exception"]


def test_a_stuck_stream_drops_lines_counts_them_and_never_waits() -> None:
    stream = Stuck()
    writer = LogWriter(stream, lines=10)
    for number in range(1000):
        writer.write(str(number))
    stream.gate.set()
    writer.close()
    lines = stream.getvalue().splitlines()
    assert 10 <= len(lines) <= 13
    dropped = [json.loads(line)["lines"] for line in lines if line.startswith("{")]
    assert sum(dropped) + len(lines) - len(dropped) >= 999


def test_closing_a_stuck_log_is_bounded() -> None:
    stream = Stuck()
    writer = LogWriter(stream)
    writer.write("x")
    writer.close(timeout_s=0.05)
    stream.gate.set()
