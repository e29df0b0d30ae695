"""Clients that hold connections without using them: bounded in time and number, and never at others' cost."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import api_for
from ..support.sockets import raw_request
from .hostile import (
    address,
    honest_play,
    memory_mib,
    no_descriptors_left,
    open_silently,
    statuses,
    talk,
)

pytestmark = pytest.mark.process

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /create HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: slow\r\n"
LIMITS: dict[str, Any] = {"head_time_limit_s": 1, "transfer_time_limit_s": 3, "keep_alive_s": 1}
SOON_S = 8.0


@pytest.fixture(scope="module")
def impatient() -> Iterator[ServerProcess]:
    with server(f"{ENVIRONMENTS}:Scripted", also="openenv", api_keys='["key"]', workers=2, **LIMITS) as found:
        yield found
        assert not found.events("request_failed")
        assert "Traceback" not in found.everything


KEY = b"X-API-Key: key\r\n"


async def play(url: str) -> None:
    async with api_for(url, **{"X-API-Key": "key"}) as api:
        await api.create()
        assert (await api.call("say", text="undisturbed")).text == "undisturbed"
        await api.delete()


async def test_silent_connections_end_and_give_their_descriptors_back(impatient: ServerProcess) -> None:
    before = impatient.descriptors()
    opened = await asyncio.to_thread(open_silently, impatient.url, 400)
    try:
        await play(impatient.url)
        await no_descriptors_left(impatient, before)
        for each in opened:
            assert each.recv(10) == b""  # closed without a word: browsers open some in advance
        await play(impatient.url)
    finally:
        for each in opened:
            each.close()


HALVES = [
    ("a method", b"GE"),
    ("half a URL", b"GET /heal"),
    ("half a head", GET),
    ("a blank line", b"\r\n"),
    ("half a handshake", GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    ("no body", POST + KEY + b"Content-Length: 10\r\n\r\n"),
    ("half a body", POST + KEY + b"Content-Length: 10\r\n\r\n{"),
    ("half a chunk", POST + KEY + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"),
    ("half a chunk's size", POST + KEY + b"Transfer-Encoding: chunked\r\n\r\n5"),
    ("no trailers", POST + KEY + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"),
]


async def test_half_a_request_is_answered_408_in_time(impatient: ServerProcess) -> None:
    async def send(half: bytes, used: bool) -> bytes:
        async with talk(impatient.url) as client:
            if used:
                await client.send(GET + b"\r\n")
                assert await client.status() == 200
                await client.reader.readexactly(len(b'{"status":"ok"}'))
            await client.send(half)
            return await client.rest(SOON_S)

    cases = [(name, half, used) for name, half in HALVES for used in (False, True)]
    answers = await asyncio.gather(*(send(half, used) for _, half, used in cases))
    for (name, _, used), answer in zip(cases, answers, strict=True):
        assert statuses(answer) == [408] and b"did not arrive in time" in answer, (name, used)


DRIPS = [
    ("a header", GET + b"X: ", b"y"),
    ("blank lines", b"", b"\r\n"),
    ("a body", POST + KEY + b"Content-Length: 999\r\n\r\n", b" "),
    ("chunks", POST + KEY + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ("a header of a used one", GET + b"\r\n" + GET + b"X: ", b"y"),
]


async def test_a_request_that_comes_in_drops_is_ended_in_time(impatient: ServerProcess) -> None:
    async def send(begin: bytes, drop: bytes) -> int:
        async with talk(impatient.url) as client:
            await client.send(begin)
            answer = asyncio.create_task(client.rest(SOON_S))
            while not answer.done():
                await client.send(drop)
                await asyncio.sleep(0.1)
            return statuses(await answer)[-1]

    ended = await asyncio.gather(*(send(begin, drop) for _, begin, drop in DRIPS))
    assert dict(zip((name for name, *_ in DRIPS), ended, strict=True)) == {name: 408 for name, *_ in DRIPS}


async def test_a_body_that_moves_on_may_take_its_time(impatient: ServerProcess) -> None:
    async with api_for(impatient.url, **{"X-API-Key": "key"}) as api:
        await api.create()
        text = "x" * 3_000_000
        request_ = raw_request(
            "/call", api.sid, {"name": "say", "input": {"text": text}}, **{"X-API-Key": "key"}
        )
        async with talk(impatient.url) as client:
            start = time.monotonic()
            for at in range(0, len(request_), 250_000):
                await client.send(request_[at : at + 250_000])
                await asyncio.sleep(0.4)
            assert time.monotonic() - start > 4
            assert await client.status() == 200
        await api.delete()


UPGRADES = [
    ("HTTP/2 and no more", b"GET /health HTTP/1.1\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n", 200),
    ("HTTP/1.0", b"GET /health HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n", 200),
    ("HTTP/2", b"GET /health HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n", 200),
    ("TLS", b"GET /health HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: TLS/1.0\r\n", 200),
    (
        "a body",
        b"POST /nothing HTTP/1.1\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n"
        + KEY,
        404,
    ),
]


async def test_an_upgrade_that_nobody_makes_is_answered_and_timed(impatient: ServerProcess) -> None:
    async def send(head: bytes) -> list[int]:
        async with talk(impatient.url) as client:
            await client.send(head + b"Host: localhost\r\n\r\n" + (b"{}" if b"Length" in head else b""))
            return statuses(await client.rest(SOON_S))

    answers = await asyncio.gather(*(send(head) for _, head, _ in UPGRADES))
    found = dict(zip((name for name, *_ in UPGRADES), answers, strict=True))
    assert found == {name: [status] for name, _, status in UPGRADES}


ANSWERED = [
    (GET + b"\r\n", 200),
    (b"GET /tools HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
    (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n" + KEY + b"\r\n", 404),
    (b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405),
    (b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n" + KEY + b"\r\n", 200),
    (b"GET /scripted/tasks HTTP/1.1\r\nHost: localhost\r\n" + KEY + b"\r\n", 405),
]


async def test_an_idle_connection_ends_whatever_it_was_answered(impatient: ServerProcess) -> None:
    async def send(request_: bytes) -> list[int]:
        async with talk(impatient.url) as client:
            await client.send(request_)
            return statuses(await client.rest(SOON_S))

    answers = await asyncio.gather(*(send(request_) for request_, _ in ANSWERED))
    assert answers == [[status] for _, status in ANSWERED]


async def test_the_rest_of_a_body_that_was_answered_is_not_waited_for(impatient: ServerProcess) -> None:
    async def send(drops: bool) -> list[int]:
        async with talk(impatient.url) as client:
            await client.send(b"POST /tools HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999\r\n\r\n")
            answer = asyncio.create_task(client.rest(SOON_S))
            while drops and not answer.done():
                await client.send(b"x" * 100)
                await asyncio.sleep(0.1)
            return statuses(await answer)

    answers = await asyncio.gather(*(send(drops) for drops in (False, True)))
    assert answers == [[401], [401]]


async def test_a_call_may_take_longer_than_all_these_limits(impatient: ServerProcess) -> None:
    async with api_for(impatient.url, **{"X-API-Key": "key"}) as api:
        await api.create()
        assert (await api.call("say_later", text="late", seconds=6)).text == "late"
        await api.delete()


async def fill(client_url: str, sid: str, size: int, receive_bytes: int) -> socket.socket:
    """Ask for a result of that size over a connection that takes little at once."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    await asyncio.to_thread(sock.connect, address(client_url))
    request_ = raw_request("/call", sid, {"name": "fill", "input": {"size": size}}, **{"X-API-Key": "key"})
    await asyncio.to_thread(sock.sendall, request_)
    return sock


async def test_a_result_that_nobody_reads_is_not_held_for_ever(impatient: ServerProcess) -> None:
    async with api_for(impatient.url, **{"X-API-Key": "key"}) as api:
        await api.create()
        before = impatient.descriptors()
        socks = [await fill(impatient.url, api.sid, 9_000_000, 4096) for _ in range(3)]
        try:
            async with asyncio.timeout(20):
                while impatient.descriptors() < before + 3:
                    await asyncio.sleep(0.02)
            await no_descriptors_left(impatient, before)
            assert impatient.events("client_does_not_read")
        finally:
            for each in socks:
                each.close()
        await api.delete()
    await play(impatient.url)


async def test_a_result_that_is_read_slowly_arrives_as_a_whole(impatient: ServerProcess) -> None:
    async with api_for(impatient.url, **{"X-API-Key": "key"}) as api:
        await api.create()
        size = 12_000_000
        sock = await fill(impatient.url, api.sid, size, 262_144)
        sock.setblocking(False)
        loop, start, answer = asyncio.get_running_loop(), time.monotonic(), bytearray()
        while not is_whole(answer):
            part = await loop.sock_recv(sock, 65536)
            assert part, f"cut off after {len(answer)} bytes"
            answer += part
            if len(answer) < size // 2:
                await asyncio.sleep(0.04)
        assert len(answer) > size and time.monotonic() - start > 3
        sock.close()
        await api.delete()


def is_whole(answer: bytearray) -> bool:
    """Whether an answer, of known length or in chunks, is here to its end."""
    head, _, _ = answer[:1000].partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    if length is None:
        return answer.endswith(b"0\r\n\r\n")
    return len(answer) == len(head) + 4 + int(length[1])


async def test_a_client_that_asks_and_asks_and_never_reads_ends(impatient: ServerProcess) -> None:
    before, memory = impatient.descriptors(), memory_mib(impatient.pid)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(address(impatient.url))
    sock.settimeout(0.2)
    request_ = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n" + KEY + b"\r\n"
    end = time.monotonic() + 20
    with contextlib.suppress(ConnectionError):
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                await asyncio.to_thread(sock.sendall, request_)
    assert time.monotonic() < end, "the connection is still there"
    sock.close()
    assert memory_mib(impatient.pid) - memory < 30
    await no_descriptors_left(impatient, before)


async def test_connections_over_the_limit_are_answered_with_retry_after() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", max_connections=20, head_time_limit_s=300) as full:
        async with api_for(full.url) as api:
            await api.create()
            before = full.descriptors()
            silent = await asyncio.to_thread(open_silently, full.url, 19)
            try:
                for _ in range(30):
                    async with httpx.AsyncClient(verify=False) as http:
                        answer = await http.get(f"{full.url}/health")
                    assert answer.status_code == 503 and answer.headers["retry-after"] == "2"
                    assert "as many connections" in answer.json()["detail"]
                    assert answer.headers["connection"] == "close"
                assert (await api.call("say", text="here before")).text == "here before"
                lines = full.events("connections_full")
                assert len(lines) < 4 and "ORSAY_MAX_CONNECTIONS" in lines[0]["hint"]
            finally:
                for each in silent:
                    each.close()
            await no_descriptors_left(full, before)
        await honest_play(full.url)


async def test_a_server_short_of_descriptors_says_so_and_goes_on() -> None:
    """At the limit, the event loop resets whoever connects, and says nothing."""
    with server(f"{ENVIRONMENTS}:Scripted", open_files=256, head_time_limit_s=30) as small:
        assert "256" in limit_of(small.pid)  # half of it was given at first
        async with api_for(small.url) as api:
            await api.create()
            opened: list[socket.socket] = []
            try:
                answers = await asyncio.to_thread(ask_on_many, small.url, 600, opened)
                assert set(answers) == {200, 503}, answers
                assert answers[200] > 100 and answers[503] > 300
                # what is there before goes on, with sessions and processes of its own
                assert (await api.call("say", text="as before")).text == "as before"
                other = await api.other().create()
                assert (await other.call("say", text="new")).text == "new"
                await other.delete()
                assert 1 <= len(small.events("connections_full")) < 5
                assert "ulimit" in small.events("connections_full")[0]["hint"]
                assert small.descriptors() < 256
            finally:
                for each in opened:
                    each.close()
            await api.delete()
        async with asyncio.timeout(15):
            while small.descriptors() > 100:
                await asyncio.sleep(0.05)
        await honest_play(small.url)
        assert "Traceback" not in small.everything


def limit_of(pid: int) -> str:
    with open(f"/proc/{pid}/limits") as file:
        return next(line.split()[3] for line in file if line.startswith("Max open files"))


def ask_on_many(url: str, count: int, opened: list[socket.socket]) -> dict[int, int]:
    """Statuses of ``/health`` on so many connections, all of them opened first and held."""
    for _ in range(count):
        opened.append(socket.create_connection(address(url), timeout=20))
        opened[-1].sendall(GET + b"\r\n")
    found: dict[int, int] = {}
    for each in opened:
        status = int(each.recv(1000).split()[1])
        found[status] = found.get(status, 0) + 1
    return found


async def test_a_burst_of_connections_beyond_the_limit_is_answered_too() -> None:
    """Accepted faster than they are counted, they could take what the server keeps for itself."""
    with server(f"{ENVIRONMENTS}:Scripted", open_files=256, head_time_limit_s=30) as small:
        before = small.descriptors()

        async def ask(gate: asyncio.Event) -> int:
            async with talk(small.url) as client:
                await gate.wait()
                await client.send(GET + b"\r\n")
                status = await client.status()
                await asyncio.sleep(0.5)
                return status

        gate = asyncio.Event()
        asking = [asyncio.create_task(ask(gate)) for _ in range(500)]
        await asyncio.sleep(0.5)
        gate.set()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert set(found) <= {200, 503}, [each for each in found if each not in (200, 503)][:3]
        await no_descriptors_left(small, before)
        await honest_play(small.url)
        assert not small.events("descriptors_exhausted")


async def test_the_end_of_descriptors_is_logged() -> None:
    """Something else may take them all: then connections break, and the log says why."""
    with server(f"{ENVIRONMENTS}:Scripted") as found:
        await honest_play(found.url)
        used = found.descriptors()
        soft, hard = resource.prlimit(found.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(found.pid, resource.RLIMIT_NOFILE, (used - 3, hard))
        try:
            async with asyncio.timeout(10):
                while not found.events("descriptors_exhausted"):
                    await asyncio.sleep(0.05)
            assert "ulimit" in found.events("descriptors_exhausted")[0]["hint"]
        finally:
            resource.prlimit(found.pid, resource.RLIMIT_NOFILE, (soft, hard))
        await honest_play(found.url)
        assert len(found.events("descriptors_exhausted")) == 1
