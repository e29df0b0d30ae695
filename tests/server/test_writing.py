"""The transport that writes once per turn of the loop, on a transport and a loop that the test scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from orsay.http import writing
from orsay.http.limits import Door
from orsay.http.writing import MOVED_BYTES, OneWrite

_PERIOD_S = 10.0


class ScriptedTransport:
    """Takes everything; ``left`` bytes of it are not sent."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.left = 0
        self.closing = self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = self.closing = True


class ScriptedLoop:
    """A loop whose turns end, and whose time passes, when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self._soon: list[Callable[[], None]] = []
        self._later: list[tuple[float, Callable[[], None], _Handle]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> _Handle:
        handle = _Handle()
        self._later.append((self.now + delay_s, callback, handle))
        return handle

    def end_turn(self) -> None:
        while self._soon:
            self._soon.pop(0)()

    def passes(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self._later if each[0] <= self.now]
        self._later = [each for each in self._later if each[0] > self.now]
        for _, callback, handle in due:
            if not handle.cancelled:
                callback()


class _Handle:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def loop() -> ScriptedLoop:
    return ScriptedLoop()


@pytest.fixture
def transport() -> ScriptedTransport:
    return ScriptedTransport()


@pytest.fixture
def writer(loop: ScriptedLoop, transport: ScriptedTransport) -> OneWrite:
    door = Door(head_time_s=10, transfer_time_s=_PERIOD_S, connections=100, descriptors=1000)
    return OneWrite(cast("Any", transport), cast("Any", loop), door)


def test_a_turn_is_one_write_unless_its_data_is_large(
    loop: ScriptedLoop, transport: ScriptedTransport, writer: OneWrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_KEPT_BYTES", 4)
    writer.write(b"head ")
    writer.write(b"a")
    writer.write_whole(b"b")
    assert transport.written == []
    writer.write(b"large")
    assert transport.written == [b"head ablarge"]
    writer.write_whole(b"whole")
    assert transport.written == [b"head ablarge", b"whole"]
    loop.end_turn()
    assert len(transport.written) == 2


def test_a_closing_transport_gets_nothing_more(
    loop: ScriptedLoop, transport: ScriptedTransport, writer: OneWrite
) -> None:
    writer.write(b"late")
    transport.closing = True
    writer.write_whole(b"later")
    loop.end_turn()
    writer.write_whole(b"last")
    assert transport.written == []


@pytest.mark.parametrize("last", [0, 1, MOVED_BYTES - 1])
def test_a_client_that_reads_slowly_is_kept_and_one_that_hardly_reads_is_not(
    loop: ScriptedLoop, transport: ScriptedTransport, writer: OneWrite, last: int
) -> None:
    transport.left = 9 * MOVED_BYTES
    writer.expect_reading()
    for moved in (MOVED_BYTES, 3 * MOVED_BYTES, MOVED_BYTES):
        transport.left -= moved
        loop.passes(_PERIOD_S)
        assert not transport.aborted
    transport.left -= last
    loop.passes(_PERIOD_S)
    assert transport.aborted


def test_the_time_to_read_begins_anew_with_each_blocked_answer(
    loop: ScriptedLoop, transport: ScriptedTransport, writer: OneWrite
) -> None:
    transport.left = MOVED_BYTES
    writer.expect_reading()
    loop.passes(0.6 * _PERIOD_S)
    writer.all_read()
    writer.expect_reading()
    loop.passes(0.6 * _PERIOD_S)  # the timer of the first answer finds that this one is young
    assert not transport.aborted
    loop.passes(0.39 * _PERIOD_S)
    assert not transport.aborted
    loop.passes(0.02 * _PERIOD_S)
    assert transport.aborted


def test_a_lost_connection_has_no_timer(
    loop: ScriptedLoop, transport: ScriptedTransport, writer: OneWrite
) -> None:
    transport.left = MOVED_BYTES
    writer.expect_reading()
    writer.lost()
    loop.passes(2 * _PERIOD_S)
    assert not transport.aborted
