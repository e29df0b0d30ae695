from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from orsay.logs import LogWriter, configure, get_logger, set_level

from tests.support.log_output import restored_logging
from tests.support.waiting import until_true


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield from restored_logging()


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


class Odd:
    def __repr__(self) -> str:
        return "Odd()"


@dataclass
class Hiding:
    name: str
    key: str = field(repr=False)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("ünï", "ünï"),
        ("a\ud800b", "a\ud800b"),
        ("a\x1b[2J\u2028", "a\x1b[2J\u2028"),
        (10**40, 10**40),
        (float("inf"), float("inf")),
        (None, None),
        ([1, Odd()], [1, "Odd()"]),
        ({"x": Odd()}, {"x": "Odd()"}),
        (Hiding("n", "sk-SECRET"), "Hiding(name='n')"),
        (b"\xff", "b'\\xff'"),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    ],
    ids=str,
)
def test_a_line_shows_a_value_as_json_or_as_its_repr(value: object, shown: object) -> None:
    stream = io.StringIO()
    writer = configure("info", "json", stream)
    get_logger("orsay.test").info("happened", value=value)
    writer.close()
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["value"] == shown
    assert line.startswith('{"module":"orsay.test","value":') and line.isprintable()


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


def test_a_full_pipe_that_does_not_block_costs_lines_and_not_the_log() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with open(reading, "rb") as pipe, open(writing, "w", buffering=1) as stream:
        writer = LogWriter(stream)
        for _ in range(3000):
            writer.write("x" * 100)
        until_true(lambda: writer._dropped, timeout_s=10)
        found = os.read(pipe.fileno(), 1 << 17)
        writer.write("after")
        writer.close()
        stream.close()
        found += pipe.read()
    lines = found.decode().splitlines()
    assert lines[-1] == "after" and json.loads(lines[-2])["event"] == "log_lines_dropped"


def test_closing_a_stuck_log_is_bounded() -> None:
    stream = Stuck()
    writer = LogWriter(stream)
    writer.write("x")
    writer.close(timeout_s=0.05)
    stream.gate.set()


def test_a_thread_may_log_while_another_one_prepares_the_same_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    writer = configure("info", "json", stream)
    logger, make = get_logger("orsay.test"), structlog.get_logger

    def make_slowly(*names: Any, **values: Any) -> Any:
        monkeypatch.setattr(structlog, "get_logger", make)
        other = threading.Thread(target=logger.info, args=("from another thread",))
        other.start()
        other.join()
        return make(*names, **values)

    monkeypatch.setattr(structlog, "get_logger", make_slowly)
    logger.info("from this one")
    writer.close()
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events == ["from another thread", "from this one"]


def test_lines_written_before_the_end_are_out_in_one_order_from_all_threads() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)

    def write(name: str) -> None:
        for number in range(500):
            writer.write(f"{name} {number}")

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    writer.write("too late, and no error")
    lines = stream.getvalue().splitlines()
    for name in "ab":
        assert [line for line in lines if line[0] == name] == [f"{name} {n}" for n in range(500)]


def test_a_level_that_changes_counts_for_loggers_in_use() -> None:
    stream = io.StringIO()
    writer = configure("info", "json", stream)
    logger = get_logger("orsay.test")
    logger.debug("hidden")
    logger.info("shown")
    set_level("debug")
    logger.debug("shown too")
    set_level("error")
    logger.info("hidden again")
    with structlog.testing.capture_logs() as lines:
        logger.error("captured")
    logger.error("written")
    writer.close()
    assert [line["event"] for line in lines] == ["captured"]
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events == ["shown", "shown too", "written"]
