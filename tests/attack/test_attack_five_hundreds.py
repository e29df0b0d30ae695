"""Whatever a client sends, a 500 says that code of an environment failed, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..journal.postgres import Postgres, running_postgres
from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import api_for
from ..support.sockets import connect
from .evil import Request, cases, raw_bodies
from .hostile import WAIT_S, honest_play, statuses

pytestmark = pytest.mark.process

AT_ONCE = 40


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    yield from running_postgres()


async def ask(url: str, request: Request) -> bytes:
    """The whole answer, as bytes; of a stream that goes on, its beginning."""
    reader, writer = await connect(url)
    body = request.body or b""
    lines = [b"%s: %s\r\n" % (name.encode(), value) for name, value in request.headers.items()]
    head = f"{request.method} {request.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    writer.write(head.encode() + b"Content-Length: %d\r\n" % len(body) + b"".join(lines) + b"\r\n" + body)
    found = b""
    try:
        async with asyncio.timeout(WAIT_S):
            while part := await reader.read(1 << 16):
                found += part
                if request.method == "GET" and b"text/event-stream" in found:
                    break
    finally:
        writer.transport.abort()
    return found


def is_wrong(answer: bytes) -> bool:
    found = statuses(answer)
    head = answer.partition(b"\r\n\r\n")[0].lower()
    return (
        len(found) != 1
        or found[0] == 500
        or b"x-injected" in head
        or b'"class":"internal"' in answer
        or b"Traceback" in answer
    )


async def attack(process: ServerProcess, *, every: bool) -> None:
    async with api_for(process.url) as api:
        await api.create()
        room = asyncio.Semaphore(AT_ONCE)
        wrong: list[tuple[str, bytes]] = []

        async def one(request: Request) -> None:
            async with room:
                answer = await ask(process.url, request)
                if is_wrong(answer):
                    wrong.append((request.name, answer[:500]))

        requests = [*cases(api.sid, every=every), *raw_bodies(api.sid, every=every)]
        assert len(requests) > (13_000 if every else 6_000)
        await asyncio.gather(*(one(each) for each in requests))
        assert not wrong, (len(wrong), wrong[:5])
    await honest_play(process.url)
    assert not process.events("request_failed") and not process.events("socket_failed")
    faults = [line for line in process.events("fault") if line["fault"] == "internal"]
    assert not faults, faults[:2]
    errors = [line for line in process.log if json.loads(line)["level"] == "error"]
    assert not errors, errors[:3]


async def test_nothing_that_a_client_sends_is_an_error_of_the_server(tmp_path: Path) -> None:
    with server(
        f"{ENVIRONMENTS}:Scripted",
        workers=1,
        also="openenv,mcp",
        console="on",
        journal=str(tmp_path / "journal.db"),
        idle_limit_s=5,
    ) as process:
        await attack(process, every=False)


@pytest.mark.timeout(400)  # 13,000 requests, each with a connection of its own
async def test_nor_of_a_journal_in_postgresql(postgres: Postgres) -> None:
    """It takes no NUL in any text. All values of all headers go to all places here."""
    url = postgres.new_database()
    with server(
        f"{ENVIRONMENTS}:Scripted",
        also="openenv,mcp",
        console="on",
        journal=url,
        journal_required="true",
        idle_limit_s=5,
    ) as process:
        await attack(process, every=True)
        assert not process.events("journal_trouble"), process.events("journal_trouble")


async def test_halves_of_letters_are_refused_where_they_come_in() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", runtime="local") as process:
        async with api_for(process.url) as api:
            for path in ("/scripted/tasks", "/num_tasks", "/task", "/task_range"):
                answer = await api.http.post(
                    path,
                    content=b'{"split": "\\ud800", "index": 0}',
                    headers={"Content-Type": "application/json"},
                )
                assert answer.status_code == 422 and "hex escape" in answer.text, answer.text
            await api.create()
            for value in (
                "eyJhIjogIlx1ZDgwMCJ9",
                "eyJcdWQ4MDAiOiAiYSJ9",
            ):  # {"a": "\ud800"} and {"\ud800": "a"}
                answer = await api.other().post("/create", {"task_spec": {}}, **{"X-Secrets": value})
                assert answer.status_code == 400 and "surrogate" in answer.json()["detail"], answer.text
            await api.delete()


async def test_a_report_with_a_zero_in_its_name_is_refused(tmp_path: Path) -> None:
    with server(
        f"{ENVIRONMENTS}:Scripted", runtime="local", console="on", journal=str(tmp_path / "journal.db")
    ) as process:
        found = {each.name: await ask(process.url, each) for each in cases("s") if "a report's" in each.name}
        for place in ("name", "run", "environment"):
            answer = found[f"a report's {place}: NUL"]
            assert statuses(answer) == [400] and f"'{place}' of the report holds a NUL".encode() in answer
        for harmless in ("a report's settings: NUL", "a report's name: number", "a report's name: lines"):
            assert statuses(found[harmless]) in ([200], [422])
        assert not process.events("journal_trouble")
