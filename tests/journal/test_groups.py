"""Rows of events: the short way that most calls take writes the same as the way of all others."""

from __future__ import annotations

import pytest
from orsay.journal.groups import calls_alone, encode
from orsay.journal.rows import Row
from orsay.journal.values import LARGE_CHARS

from .rows import called, dump, ended, opened, prompted, started

_IMAGE = dump({"ok": True, "output": {"blocks": [{"type": "image", "data": "aGk="}], "reward": None}})
_FAILED = called(1, wire=b"", fault="tool_error", fault_id="f1", message="broken", reward=None)


@pytest.mark.parametrize(
    "rows",
    [
        [called(1)],
        [called(1, 'a "word" with ü'), called(2, key="k", stream_s=0.1, finished=True)],
        [_FAILED],
        [called(1, body=b'{"name":"echo"}')],
        [started(1, key="k"), called(1, number=2)],
    ],
)
def test_calls_alone_are_written_as_all_others_are(rows: list[Row]) -> None:
    found = calls_alone([(row, None) for row in rows])
    assert found is not None
    group = encode(rows)
    assert {call[0]: call for call in found} == group.calls
    assert sum(map(len, group.tables())) == len(rows)  # and there was nothing else to write


@pytest.mark.parametrize(
    "row",
    [
        opened(1),
        ended(1),
        prompted(1),
        called(1, "x" * LARGE_CHARS),
        called(1, result=_IMAGE),
        called(1, body=dump({"name": "echo", "input": {"text": "x" * LARGE_CHARS}})),
        called(1, hide=("a-secret",)),
        started(1, hide=("a-secret",)),
        started(1, "x" * LARGE_CHARS),
        called(1, kind="score_group"),
    ],
)
def test_what_has_more_to_it_is_left_to_the_longer_way(row: Row) -> None:
    assert calls_alone([(row, None)]) is None
    assert calls_alone([(called(1), None), (row, None)]) is None
