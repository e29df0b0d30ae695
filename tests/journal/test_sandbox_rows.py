"""Rows of what sessions do in sandboxes: bounded, without secrets, read with their calls, and removed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from orsay.journal.export import Export, Recipe
from orsay.journal.ids import new_id
from orsay.journal.read.query import trajectory
from orsay.journal.records import SandboxUsed
from orsay.journal.schema import sandbox_events, values
from orsay.journal.write.batch import SANDBOX_COMMAND_CHARS, SANDBOX_OUTPUT_CHARS
from orsay.journal.write.retention import remove
from orsay_protocol.redact import Redactor
from sqlalchemy import func, select

from .postgres import Postgres
from .rows import called, ended, opened, prompted, put, writing

SECRET = "a-secret-of-the-session"
HIDE = Redactor((SECRET,))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.database)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


def used(session: int, what: str = "ls /", output: bytes | None = b"bin\n", **changes: Any) -> SandboxUsed:
    row = SandboxUsed(
        id=new_id(),
        session=session,
        sandbox="sb-1",
        kind="command",
        call="t",
        what=what,
        started_at=time.time(),
        output=output,
        exit_code=0,
        duration_s=0.1,
        size_bytes=len(output or b""),
    )
    return row._replace(**changes)


async def test_commands_are_read_with_the_call_that_ran_them(place: str) -> None:
    made = used(1, "image:1", kind="made", call=None, output=None, detail='{"cpus":1.5,"network":"none"}')
    rows = [
        made,
        used(1),
        used(1, "sleep 9", exit_code=124, timed_out=True),
        used(1, "/a", kind="write", output=None, exit_code=None, size_bytes=7),
        used(1, "true", call="another"),
        used(1, "image:1", kind="ended", call=None, output=None, exit_code=None, reason="idle"),
    ]
    async with writing(place) as writer:
        assert all(await put(writer, opened(1), *rows, called(1, task_id="t"), ended(1)))
        found = await writer.read(lambda connection: trajectory(connection, 1))
    assert found is not None
    (step,) = found.steps
    assert [(each.kind, each.what, each.output) for each in step.sandbox] == [
        ("command", "ls /", "bin\n"),
        ("command", "sleep 9", "bin\n"),
        ("write", "/a", None),
    ]
    assert [each.exit_code for each in step.sandbox] == [0, 124, None]
    assert [each.timed_out for each in step.sandbox] == [False, True, False]
    assert [(each.kind, each.what) for each in found.sandbox] == [
        ("made", "image:1"),
        ("command", "true"),
        ("ended", "image:1"),
    ]
    assert found.sandbox[0].detail == {"cpus": 1.5, "network": "none"}
    assert found.sandbox[2].reason == "idle"


async def test_commands_and_output_are_bounded(place: str) -> None:
    long = used(1, "x" * 50_000, b"y\xff\0" * 20_000, size_bytes=10**12)
    async with writing(place) as writer:
        assert all(await put(writer, opened(1), long, used(1, output=b"z" * 3_000), called(1, task_id="t")))
        found = await writer.read(lambda connection: trajectory(connection, 1))
    assert found is not None
    first, second = found.steps[0].sandbox
    assert first.what == "x" * SANDBOX_COMMAND_CHARS + "…"
    assert first.output == ("y\ufffd\ufffd" * 20_000)[:SANDBOX_OUTPUT_CHARS]
    assert first.size_bytes == 10**12
    assert second.output == "z" * 3_000


async def test_secrets_are_in_no_row_also_where_a_text_is_cut(place: str) -> None:
    at_the_cut = b"y" * (SANDBOX_OUTPUT_CHARS - 5) + SECRET.encode() + b"y" * 9_000
    rows = [
        used(1, f"curl -H {SECRET}", f"echoed {SECRET}".encode(), hide=HIDE),
        used(1, "x" * (SANDBOX_COMMAND_CHARS - 5) + SECRET, at_the_cut, hide=HIDE),
        used(1, f"/home/{SECRET}", kind="read", hide=HIDE),
    ]
    async with writing(place) as writer:
        assert all(await put(writer, opened(1, hide=HIDE), *rows, called(1, task_id="t", hide=HIDE)))
        found = await writer.read(lambda connection: trajectory(connection, 1))
    assert found is not None
    shown = [each.model_dump_json() for each in found.steps[0].sandbox]
    assert len(shown) == 3
    assert not any(SECRET[:5] in each for each in shown)
    assert found.steps[0].sandbox[0].output == "echoed [secret]"


async def test_they_are_exported_and_removed_with_their_session(place: str) -> None:
    async with writing(place) as writer:
        for session in (1, 2):
            large = used(session, output=b"z" * 5_000)
            rows = [opened(session), prompted(session), used(session), large, called(session, task_id="t")]
            assert all(await put(writer, *rows, ended(session)))
        export = Export(Recipe(full=True))
        records = await writer.read(export.page)
        assert [len(each["steps"][0]["sandbox"]) for each in records] == [2, 2]
        await writer.change(lambda connection: remove(connection, [1]))
        left = await writer.read(
            lambda c: [
                c.execute(select(table.c.session, func.count()).group_by(table.c.session)).all()
                for table in (sandbox_events, values)
            ]
        )
    assert [[tuple(row) for row in rows] for rows in left] == [[(2, 2)], [(2, 2)]]
