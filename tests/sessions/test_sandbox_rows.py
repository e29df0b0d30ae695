"""When the record of a session writes what happened in its sandboxes."""

from __future__ import annotations

import time
from typing import Any

from orsay.errors import Refused
from orsay.journal.records import Row, SandboxUsed, SessionOpened
from orsay.runtimes.base import OpenSession
from orsay.sandboxes.base import SandboxSpec
from orsay.sandboxes.events import CommandEnded, SandboxEnded, SandboxMade
from orsay.sessions.recorder import Record, Recorder
from orsay_protocol.redact import NOTHING

SPEC = SandboxSpec(image="image:1", variables={"TOKEN": "a-secret"})


class Rows(list[Row]):
    """A writer that keeps all rows."""

    def add(self, row: Row, on_durable: Any = None) -> None:
        self.append(row)


def begun(rows: Any) -> Record:
    """The record of a session whose constructor runs."""
    return Recorder(rows, "here").begin(
        "sid", "", "lab", OpenSession(key="lab"), b"", NOTHING,
        task="train:0", client="tests", replayable=True, hash_seed=None,
    )  # fmt: skip


def ran(command: str = "true") -> CommandEnded:
    return CommandEnded(
        sandbox="sb-1", started_at=time.time(), command=command, output=b"", size_bytes=0,
        return_code=0, timed_out=False, duration_s=0.1,
    )  # fmt: skip


def kinds(rows: Rows) -> list[str]:
    return [row.kind if isinstance(row, SandboxUsed) else type(row).__name__ for row in rows]


def test_what_a_constructor_does_follows_the_row_of_its_session() -> None:
    rows = Rows()
    record = begun(rows)
    record.sandbox_used(
        SandboxMade(sandbox="sb-1", started_at=1.0, spec=SPEC, warm=False, duration_s=1), None
    )
    record.sandbox_used(ran(), None)
    assert rows == [] and record.used_sandbox
    record.write_opening(lambda durable: None)
    record.sandbox_used(ran(), "task")
    assert kinds(rows) == ["SessionOpened", "made", "command", "command"]
    assert isinstance(rows[0], SessionOpened) and {row.session for row in rows[1:]} == {rows[0].id}  # type: ignore[union-attr]  # all are SandboxUsed
    assert "a-secret" not in str(rows)


def test_a_session_that_is_refused_leaves_nothing() -> None:
    rows = Rows()
    record = begun(rows)
    record.sandbox_used(ran(), None)
    record.opening_failed(Refused("no"))
    assert rows == []


def test_a_loop_does_not_fill_the_journal() -> None:
    rows = Rows()
    record = Record(rows, 1)  # type: ignore[arg-type]  # has what is used of a writer
    for _ in range(10_100):
        record.sandbox_used(ran(), "task")
    record.sandbox_used(
        SandboxEnded(
            sandbox="sb-1", started_at=1.0, spec=SPEC, reason="idle", detail="nobody used it",
            duration_s=9, commands=10_100, files=0,
        ),
        None,
    )  # fmt: skip
    assert len(rows) == 10_001
    last = rows[-1]
    assert (
        isinstance(last, SandboxUsed) and last.kind == "ended" and '"commands": 10100' in (last.detail or "")
    )


def test_a_replay_writes_new_sandboxes_only() -> None:
    rows = Rows()
    record = Recorder(rows, "here").resume(1, used_sandbox=True)  # type: ignore[arg-type]  # as above
    record.sandbox_used(SandboxMade(sandbox="sb-2", started_at=1.0, spec=SPEC, warm=True, duration_s=1), None)
    record.sandbox_used(ran(), None)
    assert kinds(rows) == ["made"]
    record.restore((), number=0, clock=0, faults=(), reward_sum=None)
    record.sandbox_used(ran(), "task")
    assert kinds(rows) == ["made", "command"]
