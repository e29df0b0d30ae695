"""One API key that takes all that it can get: the other keys still get their part."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import Api, api_for
from ..support.waiting import until

pytestmark = pytest.mark.process

LIMIT_S = 60.0
KEYS = ["a-key-of-alice", "a-key-of-bob"]
ALICE, BOB = ({"X-API-Key": key} for key in KEYS)


@pytest.fixture(scope="module")
def shared() -> Iterator[ServerProcess]:
    """Of two keys, each of which may have half; a test deletes its sessions."""
    with server(
        f"{ENVIRONMENTS}:Scripted",
        runtime="local",
        api_keys=KEYS,
        also="openenv",
        max_sessions=9,
        max_calls=4,
        stored_bytes=400_000,
    ) as found:
        yield found


async def fill(api: Api, most: int) -> tuple[list[Api], httpx.Response]:
    """Open sessions until one is refused, or there are ``most``: the sessions, and the last answer."""
    opened: list[Api] = []
    while True:
        session = api.other()
        answer = await session.post("/create", {"env_name": "scripted", "task_spec": {}})
        if answer.status_code != 200:
            return opened, answer
        opened.append(session)
        if len(opened) == most:
            return opened, answer


async def test_with_several_keys_one_may_have_half_of_the_sessions(shared: ServerProcess) -> None:
    async with api_for(shared.url, **ALICE) as alice, api_for(shared.url, **BOB) as bob:
        hers, refused = await fill(alice, 9)
        assert len(hers) == 4 and refused.status_code == 429
        detail = refused.json()["detail"]
        assert detail.startswith("this key is at maximum capacity: 4 sessions")
        assert "ORSAY_MAX_SESSIONS_PER_KEY" in detail and refused.headers["retry-after"]
        his, refused = await fill(bob, 9)
        assert len(his) == 4 and refused.json()["detail"].startswith("this key")
        for session in (*hers, *his):
            await session.delete()


@pytest.mark.parametrize("keys", [[], KEYS[:1], [KEYS[0], KEYS[0]]])
async def test_one_key_alone_may_have_all(keys: list[str]) -> None:
    with server(f"{ENVIRONMENTS}:Scripted", runtime="local", api_keys=keys, max_sessions=4) as own:
        async with api_for(own.url, **ALICE) as alice:
            opened, refused = await fill(alice, 9)
            assert len(opened) == 4
            assert refused.json()["detail"] == "server at maximum capacity: 4 sessions"


async def test_the_setting_wins() -> None:
    with server(
        f"{ENVIRONMENTS}:Scripted", runtime="local", api_keys=KEYS, max_sessions=4, max_sessions_per_key=4
    ) as own:
        async with api_for(own.url, **ALICE) as alice:
            opened, refused = await fill(alice, 9)
            assert len(opened) == 4 and refused.json()["detail"].startswith("server at maximum capacity")


async def test_a_key_that_is_added_halves_what_one_may_have(tmp_path: Path) -> None:
    file = tmp_path / "orsay.toml"

    def write(*keys: str) -> None:
        listed = ", ".join(f'"{key}"' for key in keys)
        table = f'[environments.scripted]\nclass = "{ENVIRONMENTS}:Scripted"\n'
        file.write_text(f'runtime = "local"\nmax_sessions = 6\napi_keys = [{listed}]\n{table}')

    write(KEYS[0])
    process = ServerProcess(["--port", "0", "--config", str(file)], {"ORSAY_LOG_FORMAT": "json"})
    try:
        process.wait_for_url()
        async with api_for(process.url, **ALICE) as alice:
            assert len((await fill(alice, 3))[0]) == 3
            write(*KEYS)
            process.signal(signal.SIGHUP)
            await until(lambda: process.events("config_applied"))
            assert (await fill(alice, 1))[0] == []
            async with api_for(process.url, **BOB) as bob:
                assert len((await fill(bob, 9))[0]) == 3
    finally:
        process.end()


async def test_one_key_may_run_half_of_the_calls(tmp_path: Path, shared: ServerProcess) -> None:
    gate = tmp_path / "gate"
    async with api_for(shared.url, **ALICE) as alice, api_for(shared.url, **BOB) as bob:
        others = [await alice.other().create() for _ in range(2)]
        waiting = [asyncio.create_task(each.call("add_later", gate=str(gate))) for each in others]
        await until_running(alice, 2)
        await alice.create()
        await bob.create()
        refused = await alice.call("say", text="x")
        assert refused.status == 429
        assert refused.detail.startswith("this key is at maximum capacity: 2 calls are running")
        assert "ORSAY_MAX_CALLS_PER_KEY" in refused.detail
        assert (await bob.call("say", text="mine")).text == "mine"
        gate.touch()
        for call in waiting:
            assert (await call).status == 200
        assert (await alice.call("say", text="again")).text == "again"
        for session in (*others, alice, bob):
            await session.delete()


async def until_running(api: Api, number: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            metrics = (await api.http.get("/metrics")).text.splitlines()
            (line,) = (each for each in metrics if each.startswith("orsay_calls_running{"))
            if float(line.split()[-1]) == number:
                return
            await asyncio.sleep(0.01)


async def test_results_of_one_key_do_not_push_out_those_of_another(shared: ServerProcess) -> None:
    async with api_for(shared.url, **ALICE) as alice, api_for(shared.url, **BOB) as bob:
        await alice.create()
        await bob.create()
        mine = await bob.call("fill", size=50_000)
        hers = [await alice.call("fill", size=90_000) for _ in range(12)]
        assert (await bob.attach(mine.task_id)).text == mine.text
        assert (await alice.attach(hers[-1].task_id)).text == hers[-1].text
        assert (await alice.attach(hers[0].task_id)).fault == "unknown_task_id"
        await alice.delete()
        await bob.delete()


async def test_one_key_may_have_32_live_streams_of_the_console(shared: ServerProcess) -> None:
    async with (
        api_for(shared.url, **ALICE) as alice,
        api_for(shared.url, **BOB) as bob,
        AsyncExitStack() as stack,
    ):
        for _ in range(32):
            stream = await stack.enter_async_context(alice.http.stream("GET", "/console/api/live"))
            assert stream.status_code == 200
        refused = await alice.http.get("/console/api/live")
        assert refused.status_code == 429
        assert refused.json()["detail"] == "this key is at maximum capacity: 32 streams of the console"
        async with bob.http.stream("GET", "/console/api/live") as his:
            assert his.status_code == 200


@asynccontextmanager
async def socket(own: ServerProcess, headers: dict[str, str]) -> AsyncIterator[ClientConnection]:
    url = own.url.replace("http", "ws") + "/ws"
    async with connect(url, additional_headers=headers, proxy=None) as connection:
        yield connection


async def test_one_key_may_have_as_many_websockets_as_sessions(shared: ServerProcess) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(socket(shared, ALICE))
        with pytest.raises(InvalidStatus) as refused:
            async with socket(shared, ALICE):
                pass
        assert refused.value.response.status_code == 429
        assert b"this key is at maximum capacity: 4 WebSockets" in refused.value.response.body
        async with socket(shared, BOB):
            pass
    async with asyncio.timeout(LIMIT_S):  # the place is free once the server knows that she left
        while not await opens(shared, ALICE):
            await asyncio.sleep(0.01)


async def opens(own: ServerProcess, headers: dict[str, str]) -> bool:
    try:
        async with socket(own, headers):
            return True
    except InvalidStatus as refused:
        assert refused.response.status_code == 429
        return False


async def test_all_websockets_together_are_bounded() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", runtime="local", max_sessions=2, also="openenv") as own:
        async with AsyncExitStack() as stack:
            for _ in range(64):  # so many at least, where there may be fewer sessions
                await stack.enter_async_context(socket(own, {}))
            with pytest.raises(InvalidStatus) as refused:
                async with socket(own, {}):
                    pass
            assert b"server at maximum capacity: 64 WebSockets" in refused.value.response.body
