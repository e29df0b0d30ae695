"""A session that goes on after a kill is the one that was killed, in whatever order its calls overlapped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
import pytest_asyncio

from tests.support.server_process import ServerProcess, children, server
from tests.support.session_api import Api, Reply, api_for
from tests.support.waiting import until

pytestmark = pytest.mark.process

ORDERS = str(Path(__file__).parent / "orders.py")
WAIT_S = 60.0


class Killed:
    """A server that can be killed, and is started again on its journal."""

    def __init__(self, folder: Path, *targets: str, more: Mapping[str, str] | None = None) -> None:
        self._targets = targets
        self._variables = {
            "ORSAY_WORKERS": "1",
            "ORSAY_JOURNAL": str(folder / "journal.db"),
            "ORSAY_LOG_FORMAT": "json",
            **(more or {}),
        }
        self.log: list[str] = []
        self._port = "0"
        self.process = self._start()
        self._port = self.process.url.rpartition(":")[2]

    def _start(self) -> ServerProcess:
        process = ServerProcess(["--port", self._port, *self._targets], self._variables)
        process.wait_for_url()
        return process

    async def kill(self) -> None:
        self.process.signal(signal.SIGKILL)
        await asyncio.to_thread(self.process.end)
        self.log += self.process.log
        self.process = await asyncio.to_thread(self._start)


@asynccontextmanager
async def opened(url: str, env: str = "", **spec: Any) -> AsyncIterator[Api]:
    async with api_for(url) as api:
        answer = await api.post("/create", {"env_name": env, "task_spec": {"first": 1, **spec}})
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


Scenario: TypeAlias = AsyncGenerator[None, None]
"""A session, played up to where its server is killed, and from there on."""


async def _overlapped(url: str, folder: Path, tools: tuple[str, str]) -> Scenario:
    async with opened(url, "orders") as api:
        await overlapping(api, folder, *tools)
        assert (await api.call("read")).text == "A B"
        yield
        gone = await patiently(lambda: api.call("read"))
        assert (gone.status, gone.response.headers["x-orsay-fault"]) == (410, "session_gone")
        detail = gone.response.json()["detail"]
        assert detail.startswith("server restarted")
        assert f"its call 1 of {tools[1]!r} and its call 2 of {tools[0]!r} ran at the same time" in detail


async def _one_by_one(url: str, folder: Path, tools: tuple[str, str]) -> Scenario:
    async with opened(url, "orders") as api:
        await overlapping(api, folder, *tools)
        assert (await api.call("read")).text == "A B"
        yield
        assert (await patiently(lambda: api.call("read"))).text == "A B"


async def _refused(url: str, folder: Path) -> Scenario:
    go = folder / "go-refused"
    async with opened(url, "orders") as api:
        async with begun(api, "step", label="A", until=str(go)) as ends:
            for refused in (await api.call("queued", until="B"), await api.call("nothing")):
                assert refused.result["ok"] is False
            go.touch()
            await ends()
        yield
        assert (await patiently(lambda: api.call("read"))).text == "A"


async def _unfinished(url: str, folder: Path) -> Scenario:
    async with opened(url, "orders") as api:
        async with begun(api, "step", label="A", until=str(folder / "never")) as ends:
            assert (await api.call("queued", label="B")).text == "noted"
            yield
            with pytest.raises(httpx.TransportError):
                await ends()
        gone = await patiently(lambda: api.call("read"))
        assert gone.status == 410
        assert "its call 1 of 'queued' and its unfinished call of 'step'" in gone.response.json()["detail"]


async def _prompted(url: str, folder: Path) -> Scenario:
    async with opened(url, "orders") as api:
        assert (await api.call("draw")).text == "0"
        await api.get("/prompt")
        assert (await api.call("draw")).text == "1"
        await api.get("/prompt")
        await api.get("/messages")
        yield
        assert (await patiently(lambda: api.call("draw"))).text == "3"


async def _shown(url: str, folder: Path) -> Scenario:
    async with opened(url, "shown") as api:
        await api.call("step", label="A")
        assert (await api.get("/prompt")).json()[0]["text"] == "Noted: A"
        await api.call("step", label="B")
        assert (await api.get("/prompt")).json()[0]["text"] == "Noted: A B"
        yield
        assert (await patiently(lambda: api.call("read"))).text == "A B"


async def _listed_during_a_call(url: str, folder: Path) -> Scenario:
    mark, go = folder / "mark", folder / "go-listed"
    async with opened(url, "listed", mark=str(mark), until=str(go)) as api:
        shown = asyncio.create_task(api.get("/task_tools"))
        await until(mark.exists, timeout_s=WAIT_S)
        assert (await api.call("step", label="A")).text == "noted"
        go.touch()
        assert (await shown).status_code == 200
        yield
        gone = await patiently(lambda: api.call("read"))
        assert gone.status == 410
        assert "its call 1 of 'step' and its task_tools ran at the same time" in gone.response.text


async def _listed_after_setup(url: str, folder: Path) -> Scenario:
    async with opened(url, "listedslowly") as api:
        assert (await api.get("/task_tools")).status_code == 200
        await api.call("step", label="A")
        assert (await api.call("read")).text == "listed A"
        yield
        assert (await patiently(lambda: api.call("read"))).text == "listed A"


async def _listed_without_code(url: str, folder: Path) -> Scenario:
    go = folder / "go-without-code"
    async with opened(url, "orders") as api:
        async with begun(api, "step", label="A", until=str(go)) as ends:
            assert (await api.get("/task_tools")).status_code == 200
            go.touch()
            await ends()
        yield
        assert (await patiently(lambda: api.call("read"))).text == "A"


async def _scored(url: str, folder: Path) -> Scenario:
    body = {"candidates": [{"messages": [{"role": "user", "blocks": []}]}]}
    async with opened(url, "orders") as api:
        await api.call("step", label="A")
        assert (await api.post("/score_group", body)).status_code == 200
        await api.call("step", label="B")
        assert (await api.call("read")).text == "A scored B"
        yield
        assert (await patiently(lambda: api.call("read"))).text == "A scored B"


SCENARIOS: dict[str, Callable[[str, Path], Scenario]] = {
    **{
        f"{' and '.join(tools)} overlapped and are not made again in the order of their results": partial(
            _overlapped, tools=tools
        )
        for tools in (("step", "step"), ("step", "queued"), ("queued", "step"))
    },
    **{
        f"{' and '.join(tools)} ran one by one and are made again so": partial(_one_by_one, tools=tools)
        for tools in (("queued", "queued"), ("alone", "step"), ("step", "alone"))
    },
    "a call that was refused overlaps with nothing": _refused,
    "a call that had begun is not begun after what it overlapped with": _unfinished,
    "a prompt is asked for again where it was asked for": _prompted,
    "a prompt that shows the state is compared with that of then": _shown,
    "what was shown while a call ran is not shown again before it": _listed_during_a_call,
    "tools that are asked for at once are listed after setup": _listed_after_setup,
    "a listing that runs no code of the environment overlaps with nothing": _listed_without_code,
    "a group is scored again where it was scored": _scored,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def played(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Scenario]]:
    """All scenarios on one server, which has been killed and started again."""
    folder = tmp_path_factory.mktemp("killed")
    classes = ("Orders", "Shown", "Listed", "ListedSlowly")
    found = Killed(folder, *(f"{ORDERS}:{name}" for name in classes))
    halves = {name: scenario(found.process.url, folder) for name, scenario in SCENARIOS.items()}
    try:
        for half in halves.values():
            await anext(half)
        await found.kill()
        yield halves
    finally:
        for half in halves.values():
            await half.aclose()
        await asyncio.to_thread(found.process.end)
        print("".join(found.log + found.process.log))  # shown when a test failed


@pytest.mark.conformance("L7")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", SCENARIOS)
async def test_after_a_kill(played: dict[str, Scenario], name: str) -> None:
    with pytest.raises(StopAsyncIteration):
        await anext(played[name])


@pytest.mark.conformance("L7")
async def test_a_gateway_does_not_know_the_order_of_calls_that_overlapped(tmp_path: Path) -> None:
    with server(f"{ORDERS}:Orders") as behind:
        gateway = Killed(tmp_path, behind.url)
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


@pytest.mark.conformance("L7", "I4")
async def test_calls_that_overlapped_are_not_made_again_after_the_death_of_a_worker_either(
    tmp_path: Path,
) -> None:
    with server(f"{ORDERS}:Orders", journal=str(tmp_path / "journal.db")) as found:
        async with opened(found.url) as overlapped, opened(found.url) as ordered:
            await overlapping(overlapped, tmp_path, "step", "step")
            await overlapping(ordered, tmp_path, "queued", "queued")
            (worker,) = children(found.pid)
            os.kill(worker, signal.SIGKILL)
            await until(lambda: found.events("session_suspended"), timeout_s=WAIT_S)
            gone = await patiently(lambda: overlapped.call("read"))
            assert (gone.status, gone.response.headers["x-orsay-fault"]) == (410, "worker_lost")
            assert "ran at the same time" in gone.response.json()["detail"]
            assert (await patiently(lambda: ordered.call("read"))).text == "A B"
