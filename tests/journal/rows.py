"""Rows as sessions write them, and a writer that is closed in the end."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from orsay.journal.ids import new_id
from orsay.journal.options import JournalOptions, journal_url
from orsay.journal.records import CallEnded, CallStarted, Prompted, SessionEnded, SessionOpened
from orsay.journal.write.writer import Writer, WriterLimits
from orsay_protocol.sse import encode_result

SOON = WriterLimits(wait_limit_s=0.2, stall_s=60, retry_s=0.1, close_s=1.0, tick_s=0.05)
BOUND_S = 60.0


def options(place: Path | str, **more: Any) -> JournalOptions:
    return JournalOptions(journal_url(str(place)), **more)


@asynccontextmanager
async def writing(place: Path | str, limits: WriterLimits = SOON, **more: Any) -> AsyncIterator[Writer]:
    writer = Writer(options(place, **more), limits)
    writer.start()
    try:
        yield writer
    finally:
        await writer.close()


def opened(id: int | None = None, **changes: Any) -> SessionOpened:
    row = SessionOpened(
        id=new_id() if id is None else id,
        sid="a-session",
        server="here",
        environment="echo",
        split="train",
        task_index=3,
        task="train:3",
        owner="",
        client="tests",
        run="a run",
        labelled=True,
        step=1,
        rollout=None,
        labels=None,
        trace="0" * 32,
        digest="d",
        replayable=False,
        hash_seed=None,
        started_at=time.time(),
        request=b'{"split":"train","index":3}',
    )
    return row._replace(**changes)


def called(session: int, text: str = "hello", **changes: Any) -> CallEnded:
    """A call of ``echo``; ``result`` among the changes is what it returned, as JSON."""
    output = {"blocks": [{"type": "text", "text": text}], "reward": 0.5, "finished": False}
    result = changes.pop("result", None) or dump({"ok": True, "output": output})
    row = CallEnded(
        id=new_id(),
        session=session,
        number=1,
        kind="call",
        task_id="t",
        key=None,
        name="echo",
        body=dump({"name": "echo", "input": {"text": text}}),
        wire=encode_result(result),
        reward=0.5,
        finished=False,
        discarded=False,
        fault=None,
        fault_id=None,
        message=None,
        started_at=time.time(),
        queue_s=0.001,
        run_s=0.002,
        stream_s=None,
        total_s=0.003,
    )
    return row._replace(**changes)


def started(session: int, text: str = "hello", **changes: Any) -> CallStarted:
    body = dump({"name": "echo", "input": {"text": text}})
    return CallStarted(new_id(), session, "call", "t", None, "echo", body, time.time())._replace(**changes)


def prompted(session: int, text: str = "Say it.", **changes: Any) -> Prompted:
    return Prompted(session, "prompt", dump([{"type": "text", "text": text}]))._replace(**changes)


def ended(session: int, **changes: Any) -> SessionEnded:
    row = SessionEnded(session, time.time(), "deleted", None, 1, 0, 0.5, 0.5, True, 0.1)
    return row._replace(**changes)


def dump(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


async def put(writer: Writer, *rows: Any) -> list[bool]:
    """Add rows, and wait until each is acknowledged; whether each was committed."""
    futures = [asyncio.get_running_loop().create_future() for _ in rows]
    for row, future in zip(rows, futures, strict=True):
        writer.add(row, future.set_result)
    return list(await asyncio.wait_for(asyncio.gather(*futures), BOUND_S))


async def brought_up_to_date(writer: Writer) -> None:
    """What was committed is in the tables, for readers that do not go through the writer."""
    await writer.read(lambda connection: None)


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds; for what has no event to wait for."""
    async with asyncio.timeout(BOUND_S):
        while not holds():
            await asyncio.sleep(0.02)


def query(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """What a SQLite journal holds, as another process sees it."""
    with closing(sqlite3.connect(path, timeout=BOUND_S)) as connection:
        return connection.execute(statement).fetchall()
