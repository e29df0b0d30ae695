"""The transport that writes once per turn of the loop, on a transport that the test scripts."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from orsay.http import writing
from orsay.http.limits import Door
from orsay.http.writing import MOVED_BYTES, OneWrite


class ScriptedTransport:
    """Takes everything; ``left`` bytes of it are not sent. Some are in each of the next ``moves`` periods."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.left = self.moves = 0
        self._looks = 0
        self.closing = self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        """Asked at the begin and at the end of each period."""
        self._looks += 1
        if self._looks % 2 == 0 and self.moves:
            self.moves -= 1
            self.left -= MOVED_BYTES
        return self.left

    def abort(self) -> None:
        self.aborted = self.closing = True


def _writer(transport: ScriptedTransport, transfer_time_s: float = 10.0) -> OneWrite:
    door = Door(head_time_s=10, transfer_time_s=transfer_time_s, connections=100, descriptors=1000)
    return OneWrite(cast("Any", transport), asyncio.get_running_loop(), door)


async def test_a_turn_is_one_write_unless_its_data_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_KEPT_BYTES", 4)
    transport = ScriptedTransport()
    writer = _writer(transport)
    writer.write(b"head ")
    writer.write(b"a")
    writer.write_whole(b"b")
    assert transport.written == []
    writer.write(b"large")
    assert transport.written == [b"head ablarge"]
    writer.write_whole(b"whole")
    assert transport.written == [b"head ablarge", b"whole"]
    await asyncio.sleep(0)
    assert len(transport.written) == 2


async def test_a_closing_transport_gets_nothing_more() -> None:
    transport = ScriptedTransport()
    writer = _writer(transport)
    writer.write(b"late")
    transport.closing = True
    writer.write_whole(b"later")
    await asyncio.sleep(0)
    writer.write_whole(b"last")
    assert transport.written == []


async def test_a_client_that_reads_slowly_is_kept_and_one_that_stops_is_not() -> None:
    transport = ScriptedTransport()
    transport.left, transport.moves = 5 * MOVED_BYTES, 3
    _writer(transport, transfer_time_s=0.02).expect_reading()
    async with asyncio.timeout(20):
        while not transport.aborted:
            await asyncio.sleep(0.01)
    assert (transport.left, transport.moves) == (2 * MOVED_BYTES, 0)


async def test_the_time_to_read_begins_anew_with_each_blocked_answer() -> None:
    transport = ScriptedTransport()
    transport.left = MOVED_BYTES
    writer = _writer(transport, transfer_time_s=0.2)
    writer.expect_reading()
    await asyncio.sleep(0.1)
    writer.all_read()
    writer.expect_reading()  # the timer of the first answer goes on, and finds that this one is young
    begun = asyncio.get_running_loop().time()
    async with asyncio.timeout(20):
        while not transport.aborted:
            await asyncio.sleep(0.005)
    assert asyncio.get_running_loop().time() - begun >= 0.19
    writer.lost()
