"""Frames between the server and its workers, cut anywhere."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orsay.runtimes.process.frames import FrameReader, Outbox

pytestmark = pytest.mark.unit

FRAMES = st.lists(
    st.tuples(st.integers(1, 30), st.integers(0, 2**31), st.integers(0, 2**31), st.binary(max_size=60)),
    max_size=6,
)


async def written(frames: list[tuple[int, int, int, bytes]]) -> bytes:
    pieces: list[bytes] = []
    outbox = Outbox(pieces.append)
    for kind, number, session, payload in frames:
        outbox.send(kind, number, payload, session=session)
    await asyncio.sleep(0)
    return b"".join(pieces)


@given(FRAMES, st.lists(st.integers(0, 1000), max_size=12))
def test_frames_come_out_as_they_went_in(
    frames: list[tuple[int, int, int, bytes]], places: list[int]
) -> None:
    data = asyncio.run(written(frames))
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    reader = FrameReader()
    found = [each for start, end in pairwise(edges) for each in reader.feed(data[start:end])]
    assert found == frames


async def test_frames_for_a_process_that_is_gone_are_dropped() -> None:
    pieces: list[bytes] = []
    outbox = Outbox(pieces.append)
    outbox.send(1, 1)
    outbox.close()  # uvloop's transport raises from here on
    await asyncio.sleep(0)
    outbox.send(1, 2)
    await asyncio.sleep(0)
    assert pieces == []
