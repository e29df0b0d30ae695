"""Rows as the files of the newest ones have them: unpacked, they are written as all others are."""

from __future__ import annotations

import marshal
from decimal import Decimal
from typing import Any

import pytest
from orsay.journal.records import EvaluationSaved, RolloutLogged, RolloutOpened, Row, SandboxUsed
from orsay.journal.values import LARGE_CHARS
from orsay.journal.write import wal_codec as frames
from orsay.journal.write.batch import Batch, encode
from orsay_protocol.redact import Redactor

from .rows import called, dump, ended, opened, prompted, started

_HIDE = Redactor(("very-secret-value",))
_IMAGE = dump({"ok": True, "output": {"blocks": [{"type": "image", "data": "aGk="}], "reward": None}})
_SCORES = dump({"ok": True, "scores": [{"reward": 0.5, "detail": "good"}]})
_EVALUATION = EvaluationSaved(
    5, "evaluation", "a run", "", "echo", "test", "a model", 1.0, None, "{}", b'{"episodes":[]}'
)
_USED = SandboxUsed(7, 1, "sb-1", "command", "t", "ls very-secret-value", 1.0, b"bin", 0)
_ROLLOUT = RolloutOpened(9, "e", "", "r", None, "o/e", None, None, 3, None, '{"a":1}', None, "sdk", 1.0)
_LOGGED = RolloutLogged(9, "m", 0, "tool_call", "{}", None, None, "bash", "c", 0.5, True, None, 1.0)


def unpacked(*parts: bytes | None) -> Batch:
    group = Batch()
    for part in parts:
        assert part is not None
        frames.add(group, part)
    return group


def packed(*rows: Row) -> bytes | None:
    return frames.pack([(row, None) for row in rows])


@pytest.mark.parametrize(
    "rows",
    [
        [
            opened(1),
            prompted(1),
            started(1, id=7, key="k"),
            called(1, id=7, number=2, stream_s=0.1),
            ended(1),
        ],
        [called(1, wire=b"", fault="tool_error", fault_id="f1", message="broken", reward=None)],
        [called(1, body=b'{"name":"echo"}'), called(1, "half of a character: \\ud800")],
        [called(1, "x" * LARGE_CHARS), called(1, result=_IMAGE), started(1, "x" * LARGE_CHARS)],
        [called(1, kind="score_group", result=_SCORES)],
        [opened(1, hide=_HIDE), called(1, "a very-secret-value", hide=_HIDE), ended(1, hide=_HIDE)],
        [_EVALUATION],
        [_USED, _USED._replace(id=8, hide=_HIDE)],
        [_ROLLOUT, _LOGGED, _LOGGED._replace(event="n", content="x" * LARGE_CHARS * 2)],
        [_ROLLOUT, _LOGGED, called(1, hide=_HIDE)],
    ],
)
def test_rows_are_the_same_when_unpacked_together_and_one_by_one(rows: list[Row]) -> None:
    wanted = encode(rows)
    assert unpacked(packed(*rows)) == wanted
    assert unpacked(*(packed(row) for row in rows)) == wanted


def test_what_comes_with_a_secret_is_packed_without() -> None:
    found = packed(called(1), called(1, "the very-secret-value, known", hide=_HIDE))
    assert found is not None
    assert b"[secret], known" in found
    assert b"very-secret-value" not in found


@pytest.mark.parametrize(
    "row",
    [opened(1, task_index=2**70), opened(1, step=-(2**70), hide=_HIDE), called(1, reward=Decimal("0.5"))],
)
def test_what_only_the_tables_can_judge_is_not_packed(row: Any) -> None:
    assert packed(row) is None
    assert packed(called(1), row) is None


def test_a_file_of_before_a_field_was_added_is_read_without_it() -> None:
    version, columns, classes = frames.FORM
    former = (
        version,
        {name: names.replace(" hash_seed", "") for name, names in columns.items()},
        [(name, tuple(each for each in fields if each != "hash_seed")) for name, fields in classes],
    )
    assert former != frames.FORM and frames.reads(former)
    row = opened(1, hash_seed=7)
    (values,) = marshal.loads(packed(row) or b"")
    values = [value for value, name in zip(values[1:], row._fields, strict=True) if name != "hash_seed"]
    batch = Batch()
    frames.add(batch, marshal.dumps([(0, *values)]), former)
    assert batch.sessions == encode([opened(1, hash_seed=None, started_at=row.started_at)]).sessions


@pytest.mark.parametrize("hide", [None, _HIDE])
def test_a_file_of_before_a_table_was_added_is_read_without_it(hide: Redactor | None) -> None:
    version, columns, classes = frames.FORM
    former = (version, {name: columns[name] for name in list(columns)[:-2]}, classes[:-2])
    assert former != frames.FORM and frames.reads(former)
    row = opened(1, hide=hide)
    found = marshal.loads(packed(row) or b"")
    batch = Batch()
    frames.add(batch, marshal.dumps(found if hide is None else found[:-2]), former)
    assert batch == encode([row])


def test_a_file_of_a_later_version_is_not_read() -> None:
    version, columns, classes = frames.FORM
    assert not frames.reads((version + 1, columns, classes))
    assert not frames.reads((version, {**columns, "more": "id"}, classes))
    assert not frames.reads((version, columns, [*classes, ("More", ("id",))]))
