"""Clients whose API key is taken back while they are connected: nothing more reaches them, others go on."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.types import LATEST_PROTOCOL_VERSION
from orsay_protocol.sse import Decoder
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from ..support.server_process import ENVIRONMENTS, ServerProcess
from ..support.session_api import api_for
from ..support.sockets import connect as connect_raw
from ..support.waiting import until

pytestmark = pytest.mark.process

LIMIT_S = 60.0
ALICE, BOB = "a-key-of-alice", "a-key-of-bob"
OF_ALICE, OF_BOB = {"X-API-Key": ALICE}, {"X-API-Key": BOB}
STREAM = {"Accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_PROTOCOL_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}


class Keyed:
    """A server whose keys are in a file, one a line: at first those of Alice and Bob."""

    def __init__(self, folder: Path) -> None:
        self._keys = folder / "keys"
        self._file = folder / "orsay.toml"
        self.write(ALICE, BOB)
        self.process = ServerProcess(
            ["--port", "0", "--config", str(self._file)], {"ORSAY_WORKERS": "1", "ORSAY_LOG_FORMAT": "json"}
        )
        self.process.wait_for_url()
        self._before = 0

    @property
    def url(self) -> str:
        return self.process.url

    async def begin(self) -> None:
        """Both keys again, and no event of before."""
        await self.let_in(ALICE, BOB)
        self._before = len(self.process.log)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Log lines of that event since the test began."""
        lines = [json.loads(line) for line in self.process.log[self._before :] if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def write(self, *keys: str) -> None:
        self._keys.write_text("\n".join(keys))
        of_keys = f'api_keys_file = "{self._keys}"\n' if keys else ""
        table = f'[environments.scripted]\nclass = "{ENVIRONMENTS}:Scripted"\n'
        self._file.write_text(f'{of_keys}also = "openenv,mcp"\nclient_grace_s = 1.0\n{table}')

    async def let_in(self, *keys: str) -> None:
        """Only these from now on, or anybody; returns when the server has taken that up."""
        self.write(*keys)
        seen = len(self.process.events("config_applied"))
        self.process.signal(signal.SIGHUP)
        await until(lambda: len(self.process.events("config_applied")) > seen)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    found = Keyed(tmp_path_factory.mktemp("keyed"))
    try:
        yield found
    finally:
        found.process.end()
    for event in ("request_failed", "socket_failed", "mcp_session_failed", "library"):
        assert found.process.events(event) == []  # an end that was meant is no failure


@pytest.fixture
async def keyed(served: Keyed) -> Keyed:
    await served.begin()
    return served


@asynccontextmanager
async def socket(keyed: Keyed, headers: dict[str, str]) -> AsyncIterator[ClientConnection]:
    url = keyed.url.replace("http", "ws") + "/ws"
    async with connect(url, additional_headers=headers, proxy=None) as connection:
        yield connection


async def ask(connection: ClientConnection, kind: str, **data: Any) -> dict[str, Any]:
    async with asyncio.timeout(LIMIT_S):
        await connection.send(json.dumps({"type": kind, "data": data}))
        return dict(json.loads(await connection.recv()))


async def test_a_websocket_ends_and_its_session_with_it(keyed: Keyed) -> None:
    async with socket(keyed, OF_ALICE) as hers, socket(keyed, OF_BOB) as his:
        begun = await ask(hers, "reset", task_spec={})
        assert begun["type"] == "observation"
        sid = begun["data"]["observation"]["metadata"]["session_id"]
        assert (await ask(his, "reset", task_spec={}))["type"] == "observation"
        await keyed.let_in(BOB)
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(ConnectionClosed) as closed:
                await hers.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        assert "taken back" in closed.value.rcvd.reason
        step = await ask(his, "step", tool="say", arguments={"text": "still here"})
        assert "still here" in json.dumps(step)
        await until(lambda: any(line["session"] == sid for line in keyed.events("session_ended")))
    (line,) = keyed.events("key_revoked")
    assert line["connections"] == 1 and ALICE not in keyed.process.everything


async def test_a_websocket_ends_while_its_tool_runs(keyed: Keyed, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with socket(keyed, OF_ALICE) as hers:
        await ask(hers, "reset", task_spec={})
        step = {"tool": "add_later", "arguments": {"gate": str(gate)}}
        await hers.send(json.dumps({"type": "step", "data": step}))
        async with socket(keyed, OF_ALICE) as other:  # the step was read before this one was accepted
            await ask(other, "state")
            await keyed.let_in(BOB)
            for connection in (hers, other):
                async with asyncio.timeout(LIMIT_S):
                    with pytest.raises(ConnectionClosed):
                        await connection.recv()
    gate.touch()


async def test_a_live_stream_of_the_console_breaks_off(keyed: Keyed) -> None:
    async with api_for(keyed.url, **OF_ALICE) as alice, api_for(keyed.url, **OF_BOB) as bob:
        async with (
            bob.http.stream("GET", "/console/api/live", timeout=LIMIT_S) as his,
            alice.http.stream("GET", "/console/api/live", timeout=LIMIT_S) as hers,
        ):
            mine, others = his.aiter_bytes(), hers.aiter_bytes()
            await anext(mine)
            await anext(others)
            await keyed.let_in(BOB)
            with pytest.raises(httpx.TransportError):
                async with asyncio.timeout(LIMIT_S):
                    async for _ in others:
                        pass
            async with asyncio.timeout(LIMIT_S):
                for _ in range(3):
                    assert b"snapshot" in await anext(mine)
        again = await alice.http.get("/console/api/live")
        assert again.status_code == 401


async def test_a_call_loses_its_reader_and_is_stopped_as_any_that_nobody_reads(
    keyed: Keyed, tmp_path: Path
) -> None:
    gates = [tmp_path / name for name in ("hers", "his")]
    async with api_for(keyed.url, **OF_ALICE) as alice, api_for(keyed.url, **OF_BOB) as bob:
        for api in (alice, bob):
            await api.create()
        async with reading(alice, gates[0]) as hers, reading(bob, gates[1]) as his:
            task_id = (await anext(hers)).data
            await anext(his)
            await keyed.let_in(BOB)
            with pytest.raises(httpx.TransportError):
                async with asyncio.timeout(LIMIT_S):
                    async for event in hers:
                        assert event.event == "comment"
            assert (await alice.attach(task_id)).status == 401
            gates[1].touch()
            async with asyncio.timeout(LIMIT_S):
                assert [event.event async for event in his][-1] == "end"
        await until(lambda: faults_of(keyed, alice.sid))
        (fault,) = faults_of(keyed, alice.sid)
        assert fault["fault"] == "cancelled" and not faults_of(keyed, bob.sid)
        await keyed.let_in(ALICE, BOB)  # it was a mistake: the session is as it was
        assert await alice.ping() == 200
        assert (await alice.call("say", text="back")).text == "back"


def faults_of(keyed: Keyed, sid: str) -> list[dict[str, Any]]:
    return [line for line in keyed.events("fault") if line["session"] == sid]


@asynccontextmanager
async def reading(api: Any, gate: Path) -> AsyncIterator[Any]:
    """Events of a call that waits for the gate."""
    body = {"name": "add_later", "input": {"gate": str(gate)}}
    headers = {"X-Session-ID": api.sid}
    async with api.http.stream("POST", "/call", json=body, headers=headers, timeout=LIMIT_S) as response:

        async def events() -> AsyncIterator[Any]:
            decoder = Decoder()
            async for part in response.aiter_bytes():
                for event in decoder.feed(part):
                    yield event

        yield events()


async def test_streams_of_mcp_break_off(keyed: Keyed, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with (
        httpx.AsyncClient(base_url=keyed.url, headers={**OF_ALICE, **STREAM}, timeout=LIMIT_S) as http,
    ):
        begun = await http.post("/mcp?split=train&index=0", json=INITIALIZE)
        assert begun.status_code == 200, begun.text
        http.headers["Mcp-Session-Id"] = begun.headers["Mcp-Session-Id"]
        await http.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        params = {"name": "add_later", "arguments": {"gate": str(gate)}}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        async with (
            http.stream("GET", "/mcp") as news,
            http.stream("POST", "/mcp", json=call) as result,
        ):
            assert news.status_code == result.status_code == 200
            await keyed.let_in(BOB)
            for response in (news, result):
                with pytest.raises(httpx.TransportError):
                    async with asyncio.timeout(LIMIT_S):
                        await response.aread()
        answer = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 3, "method": "tools/list"})
        assert answer.status_code == 401
    gate.touch()


async def test_a_request_that_is_still_being_sent_is_refused(keyed: Keyed) -> None:
    reader, writer = await connect_raw(keyed.url)
    head = (
        f"POST /create HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {ALICE}\r\nX-Session-ID: slow\r\n"
        "Content-Type: application/json\r\nContent-Length: 200\r\nExpect: 100-continue\r\n\r\n"
    )
    writer.write(head.encode())
    async with asyncio.timeout(LIMIT_S):
        assert b"100 Continue" in await reader.readuntil(b"\r\n\r\n")  # its body is waited for
        await keyed.let_in(BOB)
        assert b" 401 " in await reader.readline()
    writer.close()


BEHIND = {
    "nothing": b"",
    "garbage": b"\x01garbage\r\n\r\n",
    "another version": b"GET / HTTP/3.3\r\n\r\n",
    "a tunnel": b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    "too many requests": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 34,
    "too long a head": b"GET /health HTTP/1.1\r\nX: " + b"y" * 70_000,
    "half a body": b"POST /create HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
}


def live_as(key: str) -> bytes:
    return f"GET /console/api/live HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n\r\n".encode()


async def test_a_stream_ends_whatever_was_sent_behind_its_request(keyed: Keyed) -> None:
    hers = {name: await connect_raw(keyed.url) for name in BEHIND}
    his = await connect_raw(keyed.url)
    async with asyncio.timeout(LIMIT_S):
        for name, (reader, writer) in hers.items():
            writer.write(live_as(ALICE))
            await reader.readuntil(b"snapshot")
            writer.write(BEHIND[name])
        his[1].write(live_as(BOB))
        await his[0].readuntil(b"snapshot")
        his[1].write(live_as(ALICE))  # judged when its turn comes
        async with api_for(keyed.url, **OF_BOB) as bob:
            assert (await bob.http.get("/ready")).status_code == 200  # what came before was read
        await keyed.let_in(BOB)
        for reader, writer in hers.values():
            assert b"0\r\n\r\n" not in await reader.read(), "it broke off"
            writer.close()
        for _ in range(3):
            await his[0].readuntil(b"snapshot")
    his[1].close()


async def test_who_came_without_a_key_goes_when_keys_are_asked_for(keyed: Keyed) -> None:
    await keyed.let_in()
    async with socket(keyed, {}) as anybody:
        await ask(anybody, "reset", task_spec={})
        await keyed.let_in(ALICE)
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(ConnectionClosed):
                await anybody.recv()
    async with socket(keyed, OF_ALICE) as hers:
        await keyed.let_in()  # and who had one, when there are none: her sessions are nobody's now
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(ConnectionClosed):
                await hers.recv()


async def test_other_changes_of_the_file_disturb_nobody(keyed: Keyed) -> None:
    async with socket(keyed, OF_ALICE) as hers:
        await ask(hers, "reset", task_spec={})
        await keyed.let_in(ALICE, BOB, "a-third-key")
        assert (await ask(hers, "state"))["type"] == "state"
    assert keyed.events("key_revoked") == []
