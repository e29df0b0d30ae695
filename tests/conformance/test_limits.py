"""Bounds, with settings small enough to reach them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from orsay.conformance.target import Target, TargetSession
from orsay.settings import Settings

from ..interop.servers import ServerProcess, serve
from .conftest import ENVIRONMENTS, RUNTIMES
from .playing import open_stream, session_of, text_of

pytestmark = pytest.mark.process

SMALL = {
    "ORSAY_MAX_SESSIONS": "3",
    "ORSAY_SETUP_WAIT_S": "0.2",
    "ORSAY_STREAM_PING_S": "0.2",
    "ORSAY_IDLE_LIMIT_S": "3",
}


@pytest.fixture(scope="module", params=RUNTIMES)
def small(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with serve(*ENVIRONMENTS, runtime=request.param, env=SMALL, options=["--workers", "1"]) as running:
        yield running


@pytest.mark.conformance("I6", "P-15-overloaded")
async def test_a_full_server_says_so_and_takes_the_next_when_one_leaves(small: ServerProcess) -> None:
    async with Target.open(small.url, env="busy") as target:
        sessions = [TargetSession(target, await target.new_sid()) for _ in range(4)]
        codes = [(await session.post("/create", target.task_source())).status_code for session in sessions]
        assert codes == [200, 200, 200, 429]
        refused = await sessions[3].post("/create", target.task_source())
        assert "maximum capacity" in refused.json()["detail"]
        assert int(refused.headers["retry-after"]) > 0
        assert refused.headers["x-orsay-fault"] == "overloaded"
        await sessions[0].post("/delete")
        assert (await sessions[3].post("/create", target.task_source())).status_code == 200
        for session in sessions:
            await session.post("/delete")


@pytest.mark.conformance("P-6-starting")
async def test_who_waits_too_long_for_setup_is_answered_with_retry_after(small: ServerProcess) -> None:
    async with session_of(small.url, "fragile", {"setup_s": 1}) as session:
        call = {"name": "touch", "input": {}}
        for method, path, body in (("GET", "/prompt", None), ("POST", "/call", call)):
            sent = session.headers()
            answer = await session.target.http.request(method, f"/fragile{path}", headers=sent, json=body)
            assert answer.status_code == 503
            assert answer.headers["x-backend-state"] == "starting"
            assert int(answer.headers["retry-after"]) > 0
            assert answer.json()["detail"] == "Environment still starting."
        # The client of the suite waits and asks again.
        assert text_of(await session.call("touch", {})) == "touched"


@pytest.mark.conformance("P-5.4-comments")
async def test_a_stream_carries_comments_while_a_tool_runs(small: ServerProcess) -> None:
    assert Settings().stream_ping_s <= 10
    async with session_of(small.url, "busy") as session:
        async with open_stream(session, "free", {"label": "x", "seconds": 1}) as stream:
            assert (await stream.event()).event == "task_id"
            assert (await stream.event()).event == "end"
        assert stream.raw.count(b": ping") >= 3
        assert b"\n" not in stream.raw.replace(b"\r\n", b"")


@pytest.mark.conformance("L3")
async def test_setup_counts_as_activity_to_its_end(small: ServerProcess) -> None:
    async with session_of(small.url, "fragile", {"setup_s": 4}) as session:
        # Nobody asks for anything: not while setup takes longer than the idle limit, nor soon after.
        await asyncio.sleep(5)
        assert text_of(await session.call("touch", {})) == "touched"
