"""A session that goes on after a kill is the one that was killed, in whatever order its calls overlapped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.system.serving import Api, Reply, ServerProcess, api_for, children, server, until

pytestmark = pytest.mark.process

ORDERS = str(Path(__file__).parent / "orders.py")
WAIT_S = 60.0


class Killed:
    """A server that can be killed, and is started again on its journal."""

    def __init__(self, folder: Path, target: str, more: Mapping[str, str]) -> None:
        self._target = target
        self._variables = {
            "ORSAY_WORKERS": "1",
            "ORSAY_JOURNAL": str(folder / "journal.db"),
            "ORSAY_LOG_FORMAT": "json",
            **more,
        }
        self.log: list[str] = []
        self._port = "0"
        self.process = self._start()
        self._port = self.process.url.rpartition(":")[2]

    def _start(self) -> ServerProcess:
        process = ServerProcess(["--port", self._port, self._target], self._variables)
        process.wait_for_url()
        return process

    async def kill(self) -> None:
        self.process.signal(signal.SIGKILL)
        await asyncio.to_thread(self.process.end)
        self.log += self.process.log
        self.process = await asyncio.to_thread(self._start)


@pytest.fixture
def killed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Killed]:
    found = Killed(tmp_path, f"{ORDERS}:{getattr(request, 'param', 'Orders')}", {})
    try:
        yield found
    finally:
        found.process.end()
        print("".join(found.log + found.process.log))  # shown when the test failed


@asynccontextmanager
async def opened(url: str, **spec: Any) -> AsyncIterator[Api]:
    async with api_for(url) as api:
        answer = await api.post("/create", {"env_name": "", "task_spec": {"first": 1, **spec}})
        assert answer.status_code == 200, answer.text
        await api.post("/ping")
        yield api


async def patiently(ask: Callable[[], Awaitable[Reply]]) -> Reply:
    """Ask again while the session is being built."""
    async with asyncio.timeout(WAIT_S):
        while (reply := await ask()).status == 503:
            await asyncio.sleep(0.05)
    return reply


@asynccontextmanager
async def begun(
    api: Api, tool: str, *, headers: Mapping[str, str] | None = None, **arguments: Any
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A call that runs: its task id was read. Yields what waits for its end."""
    body = {"name": tool, "input": arguments}
    named = {"X-Session-ID": api.sid, **(headers or {})}
    async with api.http.stream("POST", "/call", json=body, headers=named) as stream:
        parts = stream.aiter_bytes()
        assert (await anext(parts)).startswith(b"event: task_id")

        async def end() -> None:
            rest = b"".join([part async for part in parts])
            assert b"event: end" in rest, rest

        yield end


async def overlapping(api: Api, folder: Path, first: str, second: str) -> None:
    """A call of each tool at the same time: the first begins first, and ends last where it can."""
    go = folder / f"go-{api.sid}"
    async with begun(api, first, label="A", until=str(go)) as first_ends:
        if first == second == "queued" or "alone" in (first, second):
            async with begun(api, second, label="B") as second_ends:
                go.touch()
                await first_ends()
                await second_ends()
            return
        assert (await api.call(second, label="B")).text == "noted"
        go.touch()
        await first_ends()


@pytest.mark.contract("L7")
@pytest.mark.parametrize("tools", [("step", "step"), ("step", "queued"), ("queued", "step")])
async def test_calls_that_overlapped_are_not_made_again_in_the_order_of_their_results(
    killed: Killed, tmp_path: Path, tools: tuple[str, str]
) -> None:
    async with opened(killed.process.url) as api:
        await overlapping(api, tmp_path, *tools)
        assert (await api.call("read")).text == "A B"
        await killed.kill()
        gone = await patiently(lambda: api.call("read"))
        assert (gone.status, gone.response.headers["x-orsay-fault"]) == (410, "session_gone")
        detail = gone.response.json()["detail"]
        assert detail.startswith("server restarted")
        assert f"its call 1 of {tools[1]!r} and its call 2 of {tools[0]!r} ran at the same time" in detail


@pytest.mark.contract("L7")
@pytest.mark.parametrize("tools", [("queued", "queued"), ("alone", "step"), ("step", "alone")])
async def test_calls_that_the_session_ran_one_by_one_are_made_again_so(
    killed: Killed, tmp_path: Path, tools: tuple[str, str]
) -> None:
    async with opened(killed.process.url) as api:
        await overlapping(api, tmp_path, *tools)
        assert (await api.call("read")).text == "A B"
        await killed.kill()
        assert (await patiently(lambda: api.call("read"))).text == "A B"


@pytest.mark.contract("L7")
async def test_a_call_that_was_refused_overlaps_with_nothing(killed: Killed, tmp_path: Path) -> None:
    async with opened(killed.process.url) as api:
        async with begun(api, "step", label="A", until=str(tmp_path / "go")) as ends:
            for refused in (await api.call("queued", until="B"), await api.call("nothing")):
                assert refused.result["ok"] is False
            (tmp_path / "go").touch()
            await ends()
        await killed.kill()
        assert (await patiently(lambda: api.call("read"))).text == "A"


@pytest.mark.contract("L7")
async def test_a_call_that_had_begun_is_not_begun_after_what_it_overlapped_with(
    killed: Killed, tmp_path: Path
) -> None:
    async with opened(killed.process.url) as api:
        async with begun(api, "step", label="A", until=str(tmp_path / "never")) as ends:
            assert (await api.call("queued", label="B")).text == "noted"
            await killed.kill()
            with pytest.raises(httpx.TransportError):
                await ends()
        gone = await patiently(lambda: api.call("read"))
        assert gone.status == 410
        assert "its call 1 of 'queued' and its unfinished call of 'step'" in gone.response.json()["detail"]


@pytest.mark.contract("L7")
async def test_a_prompt_is_asked_for_again_where_it_was_asked_for(killed: Killed) -> None:
    async with opened(killed.process.url) as api:
        assert (await api.call("draw")).text == "0"
        await api.get("/prompt")
        assert (await api.call("draw")).text == "1"
        await api.get("/prompt")
        await api.get("/messages")
        await killed.kill()
        assert (await patiently(lambda: api.call("draw"))).text == "3"


@pytest.mark.contract("L7")
@pytest.mark.parametrize("killed", ["Shown"], indirect=True)
async def test_a_prompt_that_shows_the_state_is_compared_with_that_of_then(killed: Killed) -> None:
    async with opened(killed.process.url) as api:
        await api.call("step", label="A")
        assert (await api.get("/prompt")).json()[0]["text"] == "Noted: A"
        await api.call("step", label="B")
        assert (await api.get("/prompt")).json()[0]["text"] == "Noted: A B"
        await killed.kill()
        assert (await patiently(lambda: api.call("read"))).text == "A B"


@pytest.mark.contract("L7")
@pytest.mark.parametrize("killed", ["Listed"], indirect=True)
async def test_what_was_shown_while_a_call_ran_is_not_shown_again_before_it(
    killed: Killed, tmp_path: Path
) -> None:
    mark, go = tmp_path / "mark", tmp_path / "go"
    async with opened(killed.process.url, mark=str(mark), until=str(go)) as api:
        shown = asyncio.create_task(api.get("/task_tools"))
        await until(mark.exists, timeout_s=WAIT_S)
        assert (await api.call("step", label="A")).text == "noted"
        go.touch()
        assert (await shown).status_code == 200
        await killed.kill()
        gone = await patiently(lambda: api.call("read"))
        assert gone.status == 410
        assert "its call 1 of 'step' and its task_tools ran at the same time" in gone.response.text


@pytest.mark.contract("L7")
@pytest.mark.parametrize("killed", ["ListedSlowly"], indirect=True)
async def test_tools_that_are_asked_for_at_once_are_listed_after_setup(killed: Killed) -> None:
    async with opened(killed.process.url) as api:
        assert (await api.get("/task_tools")).status_code == 200
        await api.call("step", label="A")
        assert (await api.call("read")).text == "listed A"
        await killed.kill()
        assert (await patiently(lambda: api.call("read"))).text == "listed A"


@pytest.mark.contract("L7")
async def test_a_listing_that_runs_no_code_of_the_environment_overlaps_with_nothing(
    killed: Killed, tmp_path: Path
) -> None:
    async with opened(killed.process.url) as api:
        async with begun(api, "step", label="A", until=str(tmp_path / "go")) as ends:
            assert (await api.get("/task_tools")).status_code == 200
            (tmp_path / "go").touch()
            await ends()
        await killed.kill()
        assert (await patiently(lambda: api.call("read"))).text == "A"


@pytest.mark.contract("L7")
async def test_a_group_is_scored_again_where_it_was_scored(killed: Killed) -> None:
    body = {"candidates": [{"messages": [{"role": "user", "blocks": []}]}]}
    async with opened(killed.process.url) as api:
        await api.call("step", label="A")
        assert (await api.post("/score_group", body)).status_code == 200
        await api.call("step", label="B")
        assert (await api.call("read")).text == "A scored B"
        await killed.kill()
        assert (await patiently(lambda: api.call("read"))).text == "A scored B"


@pytest.mark.contract("L7")
async def test_a_gateway_cannot_tell_the_order_of_calls_that_overlapped(tmp_path: Path) -> None:
    with server(f"{ORDERS}:Orders") as behind:
        gateway = Killed(tmp_path, behind.url, {})
        try:
            async with opened(gateway.process.url) as api, opened(gateway.process.url) as other:
                await overlapping(api, tmp_path, "queued", "queued")
                await other.call("queued", label="A")
                await other.call("queued", label="B")
                await gateway.kill()
                gone = await patiently(lambda: api.call("read"))
                assert gone.status == 410 and "ran at the same time" in gone.response.json()["detail"]
                assert (await patiently(lambda: other.call("read"))).text == "A B"
        finally:
            gateway.process.end()


@pytest.mark.contract("L7", "I4")
async def test_calls_that_overlapped_are_not_made_again_after_the_death_of_a_worker_either(
    killed: Killed, tmp_path: Path
) -> None:
    async with opened(killed.process.url) as overlapped, opened(killed.process.url) as ordered:
        await overlapping(overlapped, tmp_path, "step", "step")
        await overlapping(ordered, tmp_path, "queued", "queued")
        (worker,) = children(killed.process.pid)
        os.kill(worker, signal.SIGKILL)
        await until(lambda: killed.process.events("session_suspended"), timeout_s=WAIT_S)
        gone = await patiently(lambda: overlapped.call("read"))
        assert (gone.status, gone.response.headers["x-orsay-fault"]) == (410, "worker_lost")
        assert "ran at the same time" in gone.response.json()["detail"]
        assert (await patiently(lambda: ordered.call("read"))).text == "A B"
