"""One trace id from the client to the row of the journal, through a gateway, a worker and author code."""

from __future__ import annotations

import asyncio
import pickle
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from orsay_client import AsyncClient, Client, errors
from orsay_protocol.trace import Traceparent, new_trace, read_traceparent

from ..support.scripted_server import ScriptedServer
from ..support.server_process import ServerProcess, server
from ..support.session_api import api_for
from .scraping import BENCH, session_of

pytestmark = pytest.mark.process

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "journal.db"


@pytest.fixture(scope="module")
def served(journal: Path) -> Iterator[ServerProcess]:
    with server(BENCH, journal=str(journal), log_format="json") as found:
        yield found


@pytest.fixture(scope="module")
def gateway(served: ServerProcess) -> Iterator[ServerProcess]:
    """In front of it, another server."""
    with server(served.url, log_format="json") as found:
        yield found


async def lines_of(process: ServerProcess, trace: str, event: str) -> list[dict[str, object]]:
    """The lines of its log for that event that name the trace; waits for the first."""
    async with asyncio.timeout(60):
        while not (found := [line for line in process.events(event) if line.get("trace") == trace]):
            await asyncio.sleep(0.02)
    return found


async def test_one_id_joins_client_gateway_worker_author_and_journal(
    gateway: ServerProcess, served: ServerProcess, journal: Path
) -> None:
    async with session_of(gateway) as session:
        trace = session.trace
        await session.call("add", {"one": 1, "two": 2})
        with pytest.raises(errors.ToolError) as caught:
            await session.call("fail")
    assert re.fullmatch("[0-9a-f]{32}", trace)
    assert caught.value.trace == trace
    for process in (gateway, served):
        [fault] = await lines_of(process, trace, "fault")
        assert fault["id"] == caught.value.id
        assert await lines_of(process, trace, "session_ended")
    async with asyncio.timeout(60):
        while f"adding 1 and 2 trace={trace}" not in served.everything:  # by author code, in the worker
            await asyncio.sleep(0.02)
    async with asyncio.timeout(60):
        while not journal_has(journal, trace):
            await asyncio.sleep(0.05)


def journal_has(journal: Path, trace: str) -> bool:
    connection = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT 1 FROM sessions WHERE trace = ?", [trace]).fetchone() is not None
    finally:
        connection.close()


@pytest.mark.parametrize("runtime", ["process", "local"])
async def test_authors_may_put_the_trace_into_a_format_of_their_own(runtime: str) -> None:
    target = f"{Path(__file__).with_name('formatted.py')}:Formatted"
    with server(target, runtime=runtime) as process:
        traces = []
        for _ in range(2):
            async with session_of(process, "formatted") as session:
                await session.prompt()
                await session.call("act")
                traces.append(session.trace)
        process.end()
    assert "seen in <>: loaded" in process.everything
    for trace in traces:
        for where in ("setup", "prompt", "act", "teardown"):
            assert process.everything.count(f"seen in <{trace}>: {where}") == 1


async def test_clients_of_other_protocols_bring_their_trace_too() -> None:
    with server(BENCH, also="openenv", log_format="json") as process:
        async with httpx.AsyncClient() as http:
            answer = await http.post(f"{process.url}/reset", json={}, headers={"traceparent": PARENT})
        assert answer.status_code == 200, answer.text
        assert await lines_of(process, TRACE, "session_ended")


async def test_the_clients_trace_is_taken_and_answered(served: ServerProcess) -> None:
    async with api_for(served.url) as api:
        body = {"env_name": "bench", "split": "train", "index": 0}
        answer = await api.post("/create", body, traceparent=PARENT)
        again = await api.post("/create", body, traceparent=str(Traceparent.new()))
        await api.delete()
    assert answer.headers["x-orsay-trace"] == TRACE
    assert again.status_code == 200, "requests that differ in their trace only are the same"
    assert again.headers["x-orsay-trace"] == TRACE


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "nonsense",
        f"00-{TRACE}",
        f"00-{TRACE}-00f067aa0ba902b7",
        f"00-{TRACE.upper()}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{TRACE}-00f067aa0ba902b7-01-more",
        f"00-{TRACE}-00f067aa0ba902b7-01, {PARENT}",
    ],
)
async def test_without_a_valid_trace_the_server_begins_one(served: ServerProcess, header: str | None) -> None:
    headers = {} if header is None else {"traceparent": header}
    async with api_for(served.url) as api:
        answer = await api.post("/create", {"env_name": "bench", "split": "train", "index": 0}, **headers)
        await api.delete()
    found = answer.headers["x-orsay-trace"]
    assert re.fullmatch("[0-9a-f]{32}", found) and found.strip("0")
    assert found != TRACE


def test_what_the_standard_says_of_later_versions() -> None:
    assert read_traceparent(f"01-{TRACE}-00f067aa0ba902b7-03-what-comes") == Traceparent(
        TRACE, "00f067aa0ba902b7", "01"
    )
    assert read_traceparent(f" {PARENT} ") == Traceparent(TRACE, "00f067aa0ba902b7")
    assert str(read_traceparent(PARENT)) == PARENT
    assert len({new_trace() for _ in range(100)}) == 100


async def test_the_active_span_of_opentelemetry_is_the_parent(served: ServerProcess) -> None:
    tracer = TracerProvider().get_tracer("a-program")
    with tracer.start_as_current_span("evaluation") as span:
        found = f"{span.get_span_context().trace_id:032x}"
        async with session_of(served) as session:
            assert session.trace == found
    async with session_of(served) as session:
        assert session.trace != found
    await lines_of(served, found, "session_ended")


async def test_a_trace_that_is_given_counts(served: ServerProcess) -> None:
    async with session_of(served, traceparent=PARENT) as session:
        assert session.trace == TRACE


async def test_a_trace_that_the_server_began_is_shown(served: ServerProcess) -> None:
    async with session_of(served, traceparent="no-trace") as session:
        assert re.fullmatch("[0-9a-f]{32}", session.trace)
        await session.call("add", {"one": 1, "two": 1})
    assert await lines_of(served, session.trace, "session_ended")


def test_the_synchronous_face_has_it_too(served: ServerProcess) -> None:
    with Client(served.url) as client, client.environment().session(split="train", index=0) as session:
        assert re.fullmatch("[0-9a-f]{32}", session.trace)


async def test_errors_have_the_trace_and_keep_it_when_pickled(served: ServerProcess) -> None:
    async with session_of(served) as session:
        with pytest.raises(errors.ToolError) as caught:
            await session.call("fail")
    again = pickle.loads(pickle.dumps(caught.value))
    assert caught.value.trace == again.trace == session.trace
    assert f"trace {session.trace}" in caught.value.__notes__


async def test_an_opening_that_fails_has_the_trace() -> None:
    async def refuse(request: object, reply: object) -> None:
        await reply.json({"detail": "no"}, status=401)  # type: ignore[attr-defined]

    async with ScriptedServer(refuse) as scripted, AsyncClient(scripted.url) as client:
        session = client.environment().session(task_spec={}, traceparent=PARENT)
        with pytest.raises(errors.OrsayClientError) as caught:
            async with asyncio.timeout(60):
                await session.open()
    assert caught.value.trace == TRACE
