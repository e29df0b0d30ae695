"""Requests that are too much, or that could be taken for two: refused early, at no cost to others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest

from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import api_for
from ..support.sockets import raw_request
from .hostile import Talk, honest_play, memory_mib, slowest_health_s, statuses, talk

pytestmark = pytest.mark.process

GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
MIB = 1024 * 1024
GROWTH_MIB = 24.0


@pytest.fixture(scope="module")
def attacked() -> Iterator[ServerProcess]:
    with server(f"{ENVIRONMENTS}:Scripted", also="openenv", workers=2) as found:
        yield found
        assert not found.events("request_failed")
        assert "Traceback" not in found.everything


ENDLESS: list[tuple[str, bytes, Callable[[int], bytes], int, set[int]]] = [
    ("a header without end", GET + b"X-Long: ", lambda _: b"x" * MIB, 60, {431}),
    ("a header's name without end", GET + b"x", lambda _: b"x" * MIB, 20, {431}),
    (
        "800,000 headers",
        GET,
        lambda i: b"".join(b"x-%d: y\r\n" % j for j in range(i * 50_000, (i + 1) * 50_000)),
        16,
        {431},
    ),
    ("the smallest headers", GET, lambda _: b"a:\r\n" * 250_000, 20, {431}),
    ("a URL without end", b"GET /", lambda _: b"x" * MIB, 20, {414}),
    ("a query without end", b"GET /tasks?", lambda _: b"x=%41&" * 170_000, 20, {414}),
    ("blank lines without end", b"\r\n", lambda _: b"\r\n" * (MIB // 2), 20, {431}),
    (
        "the handshake of a WebSocket",
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Long: ",
        lambda _: b"x" * MIB,
        20,
        {431},
    ),
    (
        "an extension of a chunk",
        b"POST /create HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: e\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5;a=",
        lambda _: b"x" * MIB,
        20,
        {400},
    ),
    (
        "the size of a chunk",
        b"POST /create HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: e\r\nTransfer-Encoding: chunked\r\n\r\n",
        lambda _: b"0" * MIB,
        20,
        {400},
    ),
    (
        "a trailer without end",
        b"POST /create HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: e\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\nx: ",
        lambda _: b"x" * MIB,
        20,
        {400},
    ),
    (
        "trailers without end",
        b"POST /create HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: e\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
        lambda _: b"a:\r\n" * 250_000,
        20,
        {400, 431},
    ),
]


@pytest.mark.parametrize(
    ("begin", "more", "times", "status"), [each[1:] for each in ENDLESS], ids=[each[0] for each in ENDLESS]
)
async def test_a_head_without_end_is_refused_and_disturbs_nobody(
    attacked: ServerProcess, begin: bytes, more: Callable[[int], bytes], times: int, status: set[int]
) -> None:
    await honest_play(attacked.url)
    before, waits = memory_mib(attacked.pid), list[float]()
    async with slowest_health_s(attacked.url, waits), talk(attacked.url) as attacker:
        await attacker.send(begin)
        answer = asyncio.create_task(attacker.rest())
        sent = 0
        while sent < times and not answer.done():
            await attacker.send(more(sent))
            sent += 1
        assert memory_mib(attacked.pid) - before < GROWTH_MIB
        assert statuses(await answer)[0] in status
        async with asyncio.timeout(10):
            while len(waits) < 3:
                await asyncio.sleep(0.05)
    assert max(waits) < 3.0, sorted(waits)[-5:]
    await honest_play(attacked.url)
    assert memory_mib(attacked.pid) - before < GROWTH_MIB


async def test_a_head_that_comes_byte_by_byte_costs_no_more_than_its_bytes(attacked: ServerProcess) -> None:
    async with talk(attacked.url) as slow:
        for byte in GET + b"X-Slow: yes\r\n\r\n":
            await slow.send(bytes([byte]))
            await asyncio.sleep(0)
        assert await slow.status() == 200


@pytest.mark.parametrize("size", [60_000, 4_000])
async def test_a_head_within_the_bounds_is_taken(attacked: ServerProcess, size: int) -> None:
    async with talk(attacked.url) as client:
        await client.send(GET + b"x-large: " + b"y" * size + b"\r\n\r\n")
        assert await client.status() == 200
    async with talk(attacked.url) as client:
        await client.send(GET + b"".join(b"x-%d: y\r\n" % i for i in range(90)) + b"\r\n")
        assert await client.status() == 200


@pytest.mark.parametrize("cut", [1, 70, 900, 16_384, 65_000])
async def test_a_head_over_the_bounds_is_refused_however_it_is_cut(attacked: ServerProcess, cut: int) -> None:
    for head in (GET + b"x: " + b"y" * 70_000, GET + b"x: y\r\n" * 101 + b"\r\n"):
        async with talk(attacked.url) as client:
            answer = asyncio.create_task(client.rest())
            for at in range(0, len(head), cut):
                await client.send(head[at : at + cut])
                if cut < 100 and at % 1000 == 0:
                    await asyncio.sleep(0)
            text = await answer
            assert statuses(text) == [431], text
            assert b"connection: close" in text and b'{"detail":' in text


async def test_the_refusal_arrives_though_the_client_still_sends(attacked: ServerProcess) -> None:
    """A socket closed with bytes unread resets the connection, and the answer is lost."""
    async with talk(attacked.url) as client:
        await client.send(GET + b"x: " + b"y" * 3_000_000)
        await asyncio.sleep(0.2)
        assert statuses(await client.rest()) == [431]


async def test_requests_in_advance_are_bounded_and_answered_in_order(attacked: ServerProcess) -> None:
    before = memory_mib(attacked.pid)
    async with api_for(attacked.url) as api:
        await api.create()
        async with talk(attacked.url) as client:
            await client.send(
                raw_request("/call", api.sid, {"name": "say_later", "input": {"text": "x", "seconds": 1}})
            )
            answer = asyncio.create_task(client.rest())
            await client.send((GET + b"\r\n") * 300_000)
            found = statuses(await answer)
        assert found[0] == 200 and 2 <= len(found) <= 40 and set(found) == {200}
        await api.delete()
    assert memory_mib(attacked.pid) - before < GROWTH_MIB


async def test_some_requests_in_advance_are_answered_all(attacked: ServerProcess) -> None:
    async with talk(attacked.url) as client:
        await client.send((GET + b"\r\n") * 19 + GET + b"Connection: close\r\n\r\n")
        assert statuses(await client.rest()) == [200] * 20


async def test_what_waits_behind_a_call_ends_when_its_client_goes(attacked: ServerProcess) -> None:
    """The call is the one that knows that nobody listens, not only the last request in the row."""
    async with api_for(attacked.url) as api:
        await api.create()
        before = attacked.descriptors()
        async with talk(attacked.url) as client:
            await client.send(
                raw_request("/call", api.sid, {"name": "say_later", "input": {"text": "x", "seconds": 2}})
            )
            await client.send((GET + b"\r\n") * 3)
            assert await client.status() == 200
        async with asyncio.timeout(10):
            while attacked.descriptors() > before:
                await asyncio.sleep(0.05)
        await api.delete()


TWO_IN_ONE = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /create HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: s\r\n"
AMBIGUOUS: list[tuple[str, bytes]] = [
    (
        "length and coding",
        POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + TWO_IN_ONE,
    ),
    (
        "coding and length",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n" + TWO_IN_ONE,
    ),
    ("two lengths", POST + b"Content-Length: 0\r\nContent-Length: 45\r\n\r\n" + TWO_IN_ONE),
    ("two equal lengths", POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n" + TWO_IN_ONE),
    ("a list of lengths", POST + b"Content-Length: 0, 0\r\n\r\n" + TWO_IN_ONE),
    ("a signed length", POST + b"Content-Length: +0\r\n\r\n" + TWO_IN_ONE),
    ("a negative length", POST + b"Content-Length: -1\r\n\r\n" + TWO_IN_ONE),
    ("a hexadecimal length", POST + b"Content-Length: 0x0\r\n\r\n" + TWO_IN_ONE),
    ("a huge length", POST + b"Content-Length: 18446744073709551616\r\n\r\n" + TWO_IN_ONE),
    ("an empty length", POST + b"Content-Length: \r\n\r\n" + TWO_IN_ONE),
    ("an unknown coding", POST + b"Transfer-Encoding: x, chunked\r\n\r\n0\r\n\r\n" + TWO_IN_ONE),
    ("a coding not last", POST + b"Transfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n" + TWO_IN_ONE),
    ("identity", POST + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" + TWO_IN_ONE),
    ("chunked twice", POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + TWO_IN_ONE),
    (
        "two codings",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + TWO_IN_ONE,
    ),
    ("a quoted coding", POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n' + TWO_IN_ONE),
    ("a tab in the coding", POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + TWO_IN_ONE),
    ("a space before the colon", POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + TWO_IN_ONE),
    ("a length with a space before the colon", POST + b"Content-Length : 45\r\n\r\n" + TWO_IN_ONE),
    ("a folded coding", POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + TWO_IN_ONE),
    ("a folded line", POST + b"X-A: b\r\n c\r\n\r\n" + TWO_IN_ONE),
    (
        "a size that overflows",
        POST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n0\r\n\r\n" + TWO_IN_ONE,
    ),
    ("a negative size", POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + TWO_IN_ONE),
    ("a size with 0x", POST + b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + TWO_IN_ONE),
    ("a space after the size", POST + b"Transfer-Encoding: chunked\r\n\r\n0 \r\n\r\n" + TWO_IN_ONE),
    ("no line end after a chunk", POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{0\r\n\r\n" + TWO_IN_ONE),
    ("a bare line feed after a size", POST + b"Transfer-Encoding: chunked\r\n\r\n0\n\r\n" + TWO_IN_ONE),
    ("bare line feeds", b"GET /health HTTP/1.1\nHost: localhost\n\n" + TWO_IN_ONE),
    ("a bare line feed in a head", GET + b"X-A: b\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + TWO_IN_ONE),
    ("a bare carriage return", GET + b"X-A: b\rContent-Length: 45\r\n\r\n" + TWO_IN_ONE),
    ("NUL in a value", GET + b"X-A: a\x00b\r\n\r\n" + TWO_IN_ONE),
    ("NUL in a name", GET + b"X-\x00A: b\r\n\r\n" + TWO_IN_ONE),
    ("NUL in the target", b"GET /hea\x00lth HTTP/1.1\r\nHost: localhost\r\n\r\n" + TWO_IN_ONE),
    ("a space in the target", b"GET /health /x HTTP/1.1\r\nHost: localhost\r\n\r\n" + TWO_IN_ONE),
    ("no name", GET + b": b\r\n\r\n" + TWO_IN_ONE),
    ("a line without a colon", GET + b"X-A\r\n\r\n" + TWO_IN_ONE),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + TWO_IN_ONE),
    ("version 1.2", b"GET /health HTTP/1.2\r\nHost: localhost\r\n\r\n" + TWO_IN_ONE),
    ("version 0.9", b"GET /health\r\n\r\n" + TWO_IN_ONE),
    ("an unknown method", b"GETT /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + TWO_IN_ONE),
    ("a method in small letters", b"get /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + TWO_IN_ONE),
    ("a tunnel", b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n" + TWO_IN_ONE),
]


@pytest.mark.parametrize("request_", [each[1] for each in AMBIGUOUS], ids=[each[0] for each in AMBIGUOUS])
async def test_what_could_be_taken_for_two_requests_is_none(attacked: ServerProcess, request_: bytes) -> None:
    for cut in (len(request_), 40):
        async with talk(attacked.url) as client:
            answer = asyncio.create_task(client.rest())
            for at in range(0, len(request_), cut):
                await client.send(request_[at : at + cut])
                await asyncio.sleep(0.002 if cut == 40 else 0)
            text = await answer
            assert statuses(text) in ([400], [501], [505]), text
    await honest_play(attacked.url)


async def test_a_trailer_says_nothing_that_a_head_says(attacked: ServerProcess) -> None:
    async with api_for(attacked.url) as api:
        await api.create()
        async with talk(attacked.url) as client:
            await client.send(
                b"POST /ping HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                b"Trailer: X-Session-ID\r\n\r\n0\r\nX-Session-ID: " + api.sid.encode() + b"\r\n\r\n"
            )
            assert await client.status() == 400
        await api.delete()


async def test_an_unknown_upgrade_is_a_request_like_others(attacked: ServerProcess) -> None:
    async with talk(attacked.url) as client:
        upgrade = GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n"
        await client.send(upgrade + upgrade + GET + b"Connection: close\r\n\r\n")
        assert statuses(await client.rest()) == [200, 200, 200]


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_body_of_an_unknown_upgrade_is_no_request(attacked: ServerProcess, chunked: bool) -> None:
    """httptools reads no body after an upgrade, so its bytes would be the next request."""
    body = TWO_IN_ONE
    framing = b"Content-Length: %d\r\n\r\n" % len(body) + body
    if chunked:
        framing = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    head, end, rest = (POST + b"Connection: upgrade\r\nUpgrade: h2c\r\n" + framing).partition(b"\r\n\r\n")
    for parts in ([head + end + rest], [head + end, rest], [head + end + rest[:10], rest[10:]]):
        async with talk(attacked.url) as client:
            for part in parts:
                await client.send(part)
                await asyncio.sleep(0.05)
            await client.send(GET + b"Connection: close\r\n\r\n")
            assert statuses(await client.rest()) == [422, 200]


async def test_a_handshake_waits_for_no_other_answer(attacked: ServerProcess) -> None:
    """The frames of a WebSocket and the rest of an answer would mix."""
    handshake = (
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    async with api_for(attacked.url) as api:
        await api.create()
        async with talk(attacked.url) as client:
            await client.send(
                raw_request("/call", api.sid, {"name": "say_later", "input": {"text": "x", "seconds": 0.3}})
            )
            await client.send(handshake + b"\r\n")
            assert statuses(await client.rest()) == [200]
        async with talk(attacked.url) as client:
            await client.send(handshake + b"Content-Length: 3\r\n\r\nabc")
            assert statuses(await client.rest()) == [400]
        async with talk(attacked.url) as client:
            await client.send(handshake + b"\r\n")
            assert await client.status() == 101
        await api.delete()


@pytest.mark.parametrize("path", ["/health", "/ping", "/delete", "/nothing", "/tools", "/create"])
async def test_a_body_that_nobody_reads_is_not_kept(attacked: ServerProcess, path: str) -> None:
    before, waits = memory_mib(attacked.pid), list[float]()
    async with slowest_health_s(attacked.url, waits), talk(attacked.url) as client:
        await client.send(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n".encode()
        )
        answered = asyncio.create_task(client.status())
        for _ in range(60):
            await client.send(b"x" * MIB)
            assert memory_mib(attacked.pid) - before < GROWTH_MIB
        assert await answered in (400, 404, 405, 413)
    assert max(waits) < 3.0


async def test_a_client_that_expects_to_be_asked_for_its_body_is_asked(attacked: ServerProcess) -> None:
    async with api_for(attacked.url) as api:
        await api.create()
        request_ = raw_request(
            "/call", api.sid, {"name": "say", "input": {"text": "hi"}}, Expect="100-continue"
        )
        head, _, body = request_.partition(b"\r\n\r\n")
        async with talk(attacked.url) as client:
            await client.send(head + b"\r\n\r\n")
            assert await client.status() == 100
            await client.send(body)
            assert await client.status() == 200
        async with talk(attacked.url) as client:
            await client.send(POST + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n")
            assert await client.status() == 413
        await api.delete()


async def test_lines_in_headers_reach_neither_answers_nor_the_log_as_lines(attacked: ServerProcess) -> None:
    """The log is one JSON object a line, whatever a client puts into names, paths and labels."""
    lines = len(attacked.log)
    async with talk(attacked.url) as client:
        await client.send(
            b"GET /a%0d%0aX-Injected:%20yes%0a{%22event%22:%22forged%22} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        assert await client.status() == 404
    async with api_for(attacked.url) as api:
        label = "a\\r\\nX-Injected: yes"
        session = api.other(**{"X-Orsay-Run": label, "User-Agent": "x\\n{"})
        await session.create(env="scripted")
        await session.delete()
        answer = await api.http.post(
            "/create",
            json={"env_name": "x\r\nX-Injected: yes", "task_spec": {}},
            headers={"X-Session-ID": "inject"},
        )
        assert answer.status_code == 404 and "x-injected" not in answer.headers
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            while len(attacked.log) == lines:
                await asyncio.sleep(0.05)
    assert all(line.startswith("{") and line.endswith("}\n") for line in attacked.log)
    assert not attacked.events("forged")


async def test_a_flood_of_bad_requests_fills_no_log(attacked: ServerProcess) -> None:
    lines = len(attacked.log)

    async def bad(_: int) -> None:
        async with talk(attacked.url) as client:
            await client.send(b"\x00\x01garbage\r\n\r\n")
            assert statuses(await client.rest()) == [400]

    for _ in range(6):
        await asyncio.gather(*(bad(i) for i in range(50)))
    assert len(attacked.log) - lines < 20
    assert attacked.events("request_refused")


async def test_many_bad_clients_at_once_leave_nothing_behind(attacked: ServerProcess) -> None:
    await honest_play(attacked.url)
    before = attacked.descriptors()

    async def bad(client: Talk, i: int) -> None:
        await client.send(GET + b"x: " + b"y" * (i * 997 % 90_000))

    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(talk(attacked.url)) for _ in range(100)]
        await asyncio.gather(*(bad(client, i) for i, client in enumerate(clients)))
        await honest_play(attacked.url)
    async with asyncio.timeout(10):
        while attacked.descriptors() > before:
            await asyncio.sleep(0.05)
