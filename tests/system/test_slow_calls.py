"""What makes an answer a stream is how long the tool runs, not how long the answer waits in the server."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ..support.author_log import Log
from ..support.server_process import ServerProcess, children, server
from ..support.session_api import Api, api_for
from ..support.sockets import connect, raw_request

pytestmark = pytest.mark.process

COUNTING = str(Path(__file__).parent / "counting.py")


def streamed(path: Path) -> list[float | None]:
    """For how long each call of the journal was an open stream."""
    with closing(sqlite3.connect(path)) as journal:
        return [found for (found,) in journal.execute("SELECT stream_s FROM calls ORDER BY id")]


@pytest.mark.conformance("P-5.4-one-write")
async def test_calls_that_wait_for_a_worker_are_answered_in_one_write(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with server(f"{COUNTING}:Sum", journal=str(path)) as found:
        (worker,) = children(found.pid)
        async with api_for(found.url) as api:
            sessions = [await api.other().create("sum", first=0) for _ in range(10)]
            await asyncio.gather(*(each.call("add", number=1) for each in sessions))  # connections are open
            os.kill(worker, signal.SIGSTOP)
            try:
                calls = [asyncio.ensure_future(each.call("add", number=1)) for each in sessions]
                await asyncio.sleep(0.15)
                assert not any(call.done() for call in calls)
            finally:
                os.kill(worker, signal.SIGCONT)
            replies = await asyncio.gather(*calls)
            assert all(reply.text == "2" for reply in replies)
            assert all("content-length" in reply.response.headers for reply in replies)
        assert found.end() == 0
    assert streamed(path) == [None] * 20


@pytest.mark.conformance("P-5.4-one-write")
async def test_calls_that_wait_for_the_server_itself_are_answered_in_one_write() -> None:
    with server(runtime="local", stream_after_s=0.2) as found:
        async with api_for(found.url) as api:
            sessions = [await api.other().create() for _ in range(10)]
            await asyncio.gather(*(each.call("say", text="x") for each in sessions))  # connections are open
            calls = [
                asyncio.ensure_future(each.call("say_later", text="x", seconds=0.1)) for each in sessions
            ]
            await asyncio.sleep(0.05)
            found.signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(0.3)
            finally:
                found.signal(signal.SIGCONT)
            replies = await asyncio.gather(*calls)
            assert all("content-length" in reply.response.headers for reply in replies)


@pytest.mark.conformance("P-5.4-one-write")
@pytest.mark.parametrize("runtime", ["process", "local"])
async def test_a_slow_tool_is_answered_by_a_stream_that_begins_while_it_runs(
    log: Log, tmp_path: Path, runtime: str
) -> None:
    path = tmp_path / "journal.db"
    with server(runtime=runtime, journal=str(path), workers=2) as found:
        async with api_for(found.url) as api:
            await api.create(log=str(log.path))
            reader, writer = await connect(found.url)
            body = {"name": "add_later", "input": {"gate": log.gate("open")}}
            writer.write(raw_request("/call", api.sid, body, Connection="close"))
            async with asyncio.timeout(20):
                head = await reader.readuntil(b"\r\n\r\n")
                assert b"transfer-encoding: chunked" in head.lower()
                await reader.readuntil(b"event: task_id")
                log.open("open")
                assert b"event: end" in await reader.read()
            writer.close()
        assert found.end() == 0
    (stream_s,) = streamed(path)
    assert stream_s is not None and stream_s > 0


@pytest.mark.conformance("P-5.4-one-write")
async def test_a_call_that_waits_too_long_for_a_worker_becomes_a_stream_all_the_same(
    served: ServerProcess, api: Api
) -> None:
    await api.create()
    await api.call("say", text="setup is over")
    workers = children(served.pid)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        reader, writer = await connect(served.url)
        writer.write(
            raw_request("/call", api.sid, {"name": "say", "input": {"text": "x"}}, Connection="close")
        )
        async with asyncio.timeout(20):
            assert b"transfer-encoding: chunked" in (await reader.readuntil(b"\r\n\r\n")).lower()
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    assert b"event: end" in await reader.read()
    writer.close()
    await api.delete()


@pytest.mark.conformance("P-5.4-one-write")
async def test_who_attaches_to_a_slow_call_gets_a_stream(served: ServerProcess, api: Api, log: Log) -> None:
    await api.create(log=str(log.path))
    body = {"name": "add_later", "input": {"gate": log.gate("open")}}
    readers = []
    for _ in range(2):
        reader, writer = await connect(served.url)
        writer.write(raw_request("/call", api.sid, body, **{"Idempotency-Key": "one", "Connection": "close"}))
        async with asyncio.timeout(20):
            await reader.readuntil(b"event: task_id")
        readers.append((reader, writer))
    log.open("open")
    for reader, writer in readers:
        assert b"event: end" in await reader.read()
        writer.close()
    assert log.count("add") == 1
    await api.delete()
