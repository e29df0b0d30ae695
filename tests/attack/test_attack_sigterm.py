"""SIGTERM while clients do their worst: a clean and timely end, reported by the log alone."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import api_for
from ..support.sockets import raw_request
from .hostile import address, open_silently, talk

pytestmark = pytest.mark.process

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /create HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: half\r\n"
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(b"0123456789abcdef") + b"\r\n"
)
END_S = 15.0
STALL_S = 60.0  # a worker without CPU time must not count as blocked: its stacks would be in the log
Kind: TypeAlias = Callable[[contextlib.AsyncExitStack, ServerProcess], Awaitable[None]]


def frame(opcode: int, payload: bytes) -> bytes:
    """A masked frame of a WebSocket; the mask is zero."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack("!H", size)
    return bytes([0x80 | opcode]) + length + b"\0\0\0\0" + payload


async def end(process: ServerProcess) -> float:
    """SIGTERM; for how long the server took, which left nothing but log lines."""
    start = time.monotonic()
    process.signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, END_S + 10) == 0, process.everything
    took = time.monotonic() - start
    assert "Traceback" not in process.everything, process.everything
    assert all(line.startswith("{") for line in process.log), process.log
    assert not [line for line in process.log if json.loads(line)["level"] == "error"], process.log
    assert not [line for line in process.log if json.loads(line)["event"] == "library"], process.log
    return took


async def half_heads(stack: contextlib.AsyncExitStack, process: ServerProcess) -> None:
    for part in (b"G", GET, GET + b"X: ", b"\r\n"):
        client = await stack.enter_async_context(talk(process.url))
        await client.send(part)


async def half_bodies(stack: contextlib.AsyncExitStack, process: ServerProcess) -> None:
    for path in (
        "/create",
        "/call",
        "/scripted/tasks",
        "/console/api/sessions",
        "/nothing",
        "/reset",
        "/mcp",
    ):
        for framing in (b"Content-Length: 99\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"):
            client = await stack.enter_async_context(talk(process.url))
            head = b"POST " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: known\r\n"
            await client.send(head + framing)


async def silent(stack: contextlib.AsyncExitStack, process: ServerProcess) -> None:
    for each in await asyncio.to_thread(open_silently, process.url, 50):
        stack.callback(each.close)


async def never_reading(stack: contextlib.AsyncExitStack, process: ServerProcess) -> None:
    for i in range(3):
        sock = socket.socket()
        stack.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(address(process.url))
        tool = {"name": "fill", "input": {"size": 8_000_000}}  # twice what a kernel takes at most
        request_ = (
            raw_request("/call", "known", tool)
            if i
            else (GET.replace(b"health", b"openapi.json") + b"\r\n") * 30
        )
        sock.sendall(request_)


async def web_sockets(stack: contextlib.AsyncExitStack, process: ServerProcess) -> None:
    for more in (b"", frame(1, b'{"type": "reset"}'), frame(1, b"{")[:-1], frame(8, b""), frame(9, b"x")):
        client = await stack.enter_async_context(talk(process.url))
        await client.send(HANDSHAKE + b"\r\n")
        assert await client.status() == 101
        await client.send(more)
    client = await stack.enter_async_context(talk(process.url))
    await client.send(HANDSHAKE)


async def live_streams(stack: contextlib.AsyncExitStack, process: ServerProcess) -> None:
    for _ in range(2):
        client = await stack.enter_async_context(talk(process.url))
        await client.send(GET.replace(b"/health", b"/console/api/live") + b"\r\n")
        assert await client.status() == 200


async def in_advance(stack: contextlib.AsyncExitStack, process: ServerProcess) -> None:
    client = await stack.enter_async_context(talk(process.url))
    call = raw_request("/call", "known", {"name": "say_later", "input": {"text": "x", "seconds": 1}})
    await client.send(call + (GET + b"\r\n") * 10 + POST + b"Content-Length: 5\r\n\r\n")


async def broken(stack: contextlib.AsyncExitStack, process: ServerProcess) -> None:
    for _ in range(5):
        client = await stack.enter_async_context(talk(process.url))
        await client.send(b"\x16\x03\x01" + os.urandom(40))
        await client.send(GET + b"X: " + b"y" * 100_000)


UNFINISHED = (half_heads, half_bodies, silent, broken)
UNREAD = (never_reading, in_advance)
OPEN = (web_sockets, live_streams)


KINDS = {
    "unfinished": UNFINISHED,
    "unread": UNREAD,
    "open": OPEN,
    "all": UNFINISHED + UNREAD + OPEN,
}


async def test_the_end_is_clean_and_bounded_whatever_clients_do(tmp_path: Path) -> None:
    async def ended(process: ServerProcess, kinds: tuple[Kind, ...]) -> float:
        async with api_for(process.url) as api, contextlib.AsyncExitStack() as stack:
            known = type(api)(api.http, "known")
            await known.create()
            for each in kinds:
                await each(stack, process)
            await asyncio.sleep(0.3)
            assert (await api.http.get("/health")).status_code == 200
            return await end(process)

    with contextlib.ExitStack() as servers:
        ends = []
        for name, kinds in KINDS.items():
            journal = str(tmp_path / f"{name}.db")
            settings: dict[str, Any] = {"workers": 1, "console": "on", "journal": journal}
            found = server(f"{ENVIRONMENTS}:Scripted", also="openenv,mcp", worker_stall_s=STALL_S, **settings)
            ends.append(ended(servers.enter_context(found), kinds))
        took = dict(zip(KINDS, await asyncio.gather(*ends), strict=True))
    assert max(took.values()) < END_S, took


async def test_half_a_body_is_answered_that_the_server_stops() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", worker_stall_s=STALL_S) as process:
        async with talk(process.url) as client:
            await client.send(POST + b"Content-Length: 99\r\n\r\n{")
            await asyncio.sleep(0.3)
            process.signal(signal.SIGTERM)
            assert await client.status() == 503
        assert await asyncio.to_thread(process.wait, END_S) == 0


async def test_a_running_call_ends_well_beside_hostile_connections() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", worker_stall_s=STALL_S) as process:
        async with api_for(process.url) as api, contextlib.AsyncExitStack() as stack:
            await api.create()
            await half_heads(stack, process)
            await half_bodies(stack, process)
            call = asyncio.create_task(api.call("say_later", text="late", seconds=2))
            await asyncio.sleep(0.5)
            took = asyncio.create_task(end(process))
            assert (await call).text == "late"
            assert await took < END_S


async def test_a_second_signal_is_no_worse() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", also="openenv", worker_stall_s=STALL_S) as process:
        async with api_for(process.url) as api, contextlib.AsyncExitStack() as stack:
            await type(api)(api.http, "known").create()
            await half_bodies(stack, process)
            await never_reading(stack, process)
            await web_sockets(stack, process)
            await asyncio.sleep(0.3)
            process.signal(signal.SIGTERM)
            await asyncio.sleep(0.1)
            assert await end(process) < END_S
