"""Requests to an upstream, down to the bytes: what servers may answer, and what connections do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from orsay.errors import ConfigError
from orsay.runtimes.remote.http import Broken, HttpClient, Misdirected, address_of, parse_url

pytestmark = pytest.mark.process

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Raw:
    """A server that answers each request with the next of ``answers``; after b"" it hangs up."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.split(b"\r\n")
                        if line.lower().startswith(b"content-length")
                    ),
                    0,
                )
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0)
                writer.write(answer.removesuffix(b"<close>"))
                await writer.drain()
                if not answer or answer.endswith(b"<close>"):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def talking(*answers: bytes, path: str = "") -> AsyncIterator[tuple[Raw, HttpClient]]:
    raw = Raw(list(answers))
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(f"http://127.0.0.1:{port}{path}", connect_timeout_s=5)
    try:
        yield raw, client
    finally:
        await client.close()
        server.close()
        await asyncio.sleep(0.01)


async def body(client: HttpClient, **more: bytes) -> bytes:
    answer = await client.send("POST", "/x", {"A": "b"}, silence_s=5, **more)
    assert answer.status == 200
    return answer.body


async def test_a_request_is_what_it_says_and_its_connection_serves_again() -> None:
    async with talking(OK, OK, path="/base/") as (raw, client):
        assert await body(client, body=b"{}") == b"ok"
        assert await body(client) == b"ok"
    first, second = raw.requests
    assert first.startswith(b"POST /base/x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nA: b\r\n" in first and first.endswith(b"Content-Length: 2\r\n\r\n{}")
    assert second.endswith(b"Content-Length: 0\r\n\r\n")
    assert raw.connections == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end<close>", b"until the end"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok<close>", b"ok"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok<close>", b"ok"),
        (b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", b""),
    ],
    ids=["chunked", "continue", "hints", "until closed", "old", "closing", "empty"],
)
async def test_answers_in_any_framing_are_read_and_the_next_request_works(
    answer: bytes, expected: bytes
) -> None:
    async with talking(answer, OK) as (_, client):
        assert await body(client) == expected
        assert await body(client) == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le<close>",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok<close>",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok<close>",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "half a piece", "no HTTP", "no length"],
)
async def test_half_an_answer_is_none_and_the_request_may_have_run(answer: bytes) -> None:
    async with talking(answer, OK) as (_, client):
        with pytest.raises(Broken) as caught:
            await body(client)
        assert caught.value.may_have_run and not caught.value.unreachable
        assert await body(client) == b"ok"


async def test_where_nobody_listens_nothing_ran() -> None:
    async with talking() as (_, client):
        pass
    client = HttpClient("http://127.0.0.1:9", connect_timeout_s=5)
    with pytest.raises(Broken) as caught:
        await body(client)
    assert not caught.value.may_have_run and caught.value.unreachable
    await client.close()


async def test_silence_is_noticed_and_its_connection_not_used_again() -> None:
    async with talking(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok", OK) as (raw, client):
        with pytest.raises(Broken, match="no data for too long"):
            await client.send("GET", "/x", {}, silence_s=0.2)
        assert await body(client) == b"ok"
        assert raw.connections == 2


async def test_a_request_that_is_given_up_leaves_no_answer_for_the_next() -> None:
    async with talking(b"HTTP/1.1 200 OK\r\n", OK) as (raw, client):
        asking = asyncio.ensure_future(body(client))
        while not raw.requests:
            await asyncio.sleep(0.005)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await body(client) == b"ok"
        assert raw.connections == 2


async def test_what_a_server_says_unasked_is_not_taken_for_an_answer() -> None:
    async with talking(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", OK) as (_, client):
        assert await body(client) == b"ok"
        await asyncio.sleep(0.05)
        assert await body(client) == b"ok"


async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used() -> None:
    async with talking(OK + b"<close>", OK) as (raw, client):
        assert await body(client) == b"ok"
        await asyncio.sleep(0.05)
        assert await body(client) == b"ok"
        assert raw.connections == 2


async def test_a_stream_that_is_not_read_holds_its_server_back() -> None:
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                sent += 65536
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(pour, "127.0.0.1", 0)
    client = HttpClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connect_timeout_s=5)
    stream = await client.open("GET", "/x", {})
    before = -1
    async with asyncio.timeout(20):
        while before != sent:
            before = sent
            await asyncio.sleep(0.3)
    received = 0
    while received < before + 1_000_000:
        received += len(await stream.read())
    stream.close()
    await client.close()
    server.close()
    await asyncio.sleep(0.05)


async def test_no_header_can_begin_another_one() -> None:
    async with talking(OK) as (raw, client):
        await client.send("GET", "/x", {"A": "b\r\nX-Evil: 1\n\0"}, silence_s=5)
        assert b"A: bX-Evil: 1\r\n" in raw.requests[0]


async def test_redirects_may_lead_in_circles_only_for_a_while() -> None:
    moved = b"HTTP/1.1 307 Moved\r\nLocation: /x?again=1\r\nContent-Length: 0\r\n\r\n"
    async with talking(moved, moved, moved) as (raw, client):
        with pytest.raises(Misdirected, match="redirects"):
            await body(client)
        assert raw.requests[1].startswith(b"POST /x?again=1 HTTP/1.1")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://host:8080", "host:8080"),
        ("https://jo:pw@host/deep/", "host/deep"),
        (" http://[::1]:80/ ", "[::1]:80"),
    ],
)
def test_an_address_is_named_without_its_password(url: str, address: str) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize("check", [parse_url, address_of])
def test_a_bad_url_is_reported_without_its_password(check: Callable[[str], object]) -> None:
    with pytest.raises(ConfigError) as caught:
        check("http://jo:swordfish@host:99999999")
    assert "swordfish" not in str(caught.value)
