"""WebSockets whose clients break the rules of RFC 6455, or keep them and mean harm."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from collections.abc import Iterator

import pytest

from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from .hostile import Talk, honest_play, memory_mib, no_descriptors_left, slowest_health_s, statuses, talk

pytestmark = pytest.mark.process

MIB = 1024 * 1024
GROWTH_MIB = 8.0
PLAIN = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@pytest.fixture(scope="module")
def attacked() -> Iterator[ServerProcess]:
    with server(
        f"{ENVIRONMENTS}:Scripted", also="openenv", head_time_limit_s=2, transfer_time_limit_s=2
    ) as found:
        yield found
        assert not found.events("request_failed") and not found.events("socket_failed")
        assert "Traceback" not in found.everything, [x for x in found.log if "Traceback" in x][:2]


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    bits: int = 0,
    masked: bool = True,
    size: int | None = None,
) -> bytes:
    size = len(payload) if size is None else size
    mask = 0x80 if masked else 0
    first = bytes([(0x80 if fin else 0) | bits | opcode])
    if size < 126:
        length = bytes([mask | size])
    elif size < 1 << 16:
        length = bytes([mask | 126]) + struct.pack("!H", size)
    else:
        length = bytes([mask | 127]) + struct.pack("!Q", size)
    return first + length + (b"\0\0\0\0" if masked else b"") + payload


async def begin(client: Talk, more: bytes = b"") -> None:
    await client.send(PLAIN + more + b"\r\n")
    assert await client.status() == 101


BROKEN = [
    ("no key", PLAIN.replace(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b"")),
    ("a short key", PLAIN.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"AA==")),
    ("two keys", PLAIN + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
    ("another version", PLAIN.replace(b": 13", b": 12")),
    ("no version", PLAIN.replace(b"Sec-WebSocket-Version: 13\r\n", b"")),
    ("a post", PLAIN.replace(b"GET", b"POST")),
    ("version 1.0", PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0")),
    ("a long line", PLAIN + b"X-Long: " + b"x" * 9_000 + b"\r\n"),
    ("a longer line", PLAIN + b"X-Long: " + b"x" * 40_000 + b"\r\n"),
    ("a long URL", PLAIN.replace(b"/ws", b"/ws?" + b"x" * 9_000)),
    ("no letters", PLAIN + b"X-Odd: \xff\xfe\r\n"),
    ("an odd URL", PLAIN.replace(b"/ws", b"/%ED%A0%80/%00/ws")),
    ("raw bytes in the URL", PLAIN.replace(b"/ws", b"/\xff/ws")),
    ("an odd extension", PLAIN + b'Sec-WebSocket-Extensions: x; y="z, ;;\r\n'),
    ("odd windows", PLAIN + b"Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99\r\n"),
    ("an odd protocol", PLAIN + b"Sec-WebSocket-Protocol: ,,, ,\r\n"),
    ("another path", PLAIN.replace(b"/ws", b"/nothing")),
    ("many headers", PLAIN + b"".join(b"x-%d: y\r\n" % i for i in range(90))),
    ("secrets that are none", PLAIN + b"X-Secrets: x\r\n"),
]


async def test_a_handshake_that_is_wrong_gets_an_answer(attacked: ServerProcess) -> None:
    async def send(head: bytes) -> int:
        async with talk(attacked.url) as client:
            await client.send(head + b"\r\n")
            return await client.status()

    found = await asyncio.gather(*(send(head) for _, head in BROKEN))
    for (name, _), status in zip(BROKEN, found, strict=True):
        assert status == 101 or 400 <= status < 500, (name, status)
    await honest_play(attacked.url)


FRAMES = [
    ("an unknown opcode", frame(3)),
    ("an unknown control", frame(11)),
    ("reserved bits", frame(TEXT, b"{}", bits=0x70)),
    ("no mask", frame(TEXT, b"{}", masked=False)),
    ("half a letter", frame(TEXT, b'"\xed\xa0\x80"')),
    ("no text", frame(TEXT, b"\xff\xfe")),
    ("half of a text", frame(TEXT, b"\xe2\x82", fin=False) + frame(0, b"\xff")),
    ("nothing to go on with", frame(0, b"x")),
    ("two beginnings", frame(TEXT, b"x", fin=False) + frame(TEXT, b"y")),
    ("a long ping", frame(PING, b"x" * 126)),
    ("a ping in parts", frame(PING, b"x", fin=False)),
    ("a size without end", frame(TEXT, b"", size=2**63 - 1)),
    ("a negative size", frame(TEXT, b"", size=2**63)),
    ("more than is taken", frame(BINARY, b"x" * 100, size=2**40)),
    ("a close without a code", frame(CLOSE, b"x")),
    ("a close with a code that is none", frame(CLOSE, struct.pack("!H", 1005))),
    ("a close with bytes that are no text", frame(CLOSE, struct.pack("!H", 1000) + b"\xff")),
    ("bytes", frame(BINARY, b"\x00\x01")),
    ("no JSON", frame(TEXT, b"{")),
    ("a deep one", frame(TEXT, b"[" * 60_000)),
    ("a surrogate", frame(TEXT, b'{"type": "\\ud800", "data": {"a": "\\ud800"}}')),
    ("odd types", frame(TEXT, b'{"type": 5, "data": []}') + frame(TEXT, b"null") + frame(TEXT, b'"x"')),
    ("a NUL", frame(TEXT, b'{"type": "reset", "data": {"episode_id": "\\u0000"}}')),
    ("a huge seed", frame(TEXT, b'{"type": "reset", "data": {"seed": ' + b"9" * 5000 + b"}}")),
    ("a step before all", frame(TEXT, b'{"type": "step", "data": {"\\ud800": 1}}')),
    ("HTTP", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ("garbage", bytes(range(256)) * 20),
]


@pytest.mark.parametrize("path", [b"/ws", b"/mcp"])
async def test_frames_that_are_wrong_end_their_connection_and_no_other(
    attacked: ServerProcess, path: bytes
) -> None:
    async def send(content: bytes, cut: int) -> None:
        async with talk(attacked.url) as client:
            await client.send(PLAIN.replace(b"/ws", path) + b"\r\n")
            assert await client.status() == 101
            for at in range(0, len(content), cut):
                await client.send(content[at : at + cut])
            await client.send(frame(CLOSE, struct.pack("!H", 1000)))
            client.say_no_more()
            await client.rest()

    await asyncio.gather(*(send(content, len(content)) for _, content in FRAMES))
    await asyncio.gather(*(send(content, 1 if len(content) < 200 else 1000) for _, content in FRAMES))
    await honest_play(attacked.url)


FLOODS = [
    ("pings", frame(PING, b"x" * 120)),
    ("pongs", frame(PONG, b"x" * 120)),
    ("texts", frame(TEXT, b'{"type": "state"}')),
    ("texts that are no JSON", frame(TEXT, b"{")),
    ("parts without content", frame(0, b"", fin=False)),
    ("parts of one byte", frame(0, b"x", fin=False)),
]


@pytest.mark.parametrize("reads", [False, True], ids=["unread", "read"])
@pytest.mark.parametrize("part", [each[1] for each in FLOODS], ids=[each[0] for each in FLOODS])
async def test_a_flood_of_frames_costs_bounded_memory(
    attacked: ServerProcess, part: bytes, reads: bool
) -> None:
    await honest_play(attacked.url)
    before, waits = memory_mib(attacked.pid), list[float]()
    descriptors = attacked.descriptors()
    async with slowest_health_s(attacked.url, waits), talk(attacked.url) as client:
        await begin(client)
        if not reads:
            client.reader._transport.pause_reading()  # type: ignore[attr-defined]  # there is no public way
        if part[0] & 0x0F == 0:
            await client.send(frame(TEXT, b"[", fin=False))
        rest = asyncio.create_task(client.rest()) if reads else None
        block = part * (MIB // len(part))
        for _ in range(12 if len(part) > 100 else 3 if len(part) > 10 else 2):  # a small one is many
            client.writer.write(block)
            try:
                async with asyncio.timeout(3):
                    await client.writer.drain()
            except (TimeoutError, ConnectionError):
                break  # the server reads no more of it, or has had enough
            assert memory_mib(attacked.pid) - before < GROWTH_MIB
        async with asyncio.timeout(10):
            while len(waits) < 5:
                await asyncio.sleep(0.05)
        assert memory_mib(attacked.pid) - before < GROWTH_MIB
        if rest is not None:
            rest.cancel()
            await asyncio.gather(rest, return_exceptions=True)
    assert waits and max(waits) < 3.0, sorted(waits)[-5:]
    await no_descriptors_left(attacked, descriptors)
    await honest_play(attacked.url)


async def test_a_message_that_grows_when_it_is_unpacked_is_refused(attacked: ServerProcess) -> None:
    before = memory_mib(attacked.pid)
    async with talk(attacked.url) as client:
        await begin(client, b"Sec-WebSocket-Extensions: permessage-deflate\r\n")
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        part = packer.compress(b"\0" * MIB) + packer.flush(zlib.Z_FULL_FLUSH)  # it refers to none before it
        bomb = part * 150
        await client.send(frame(BINARY, bomb[:-4], bits=0x40))
        end = await client.rest()
    assert b"\x03\xf1" in end  # 1009: too large
    assert memory_mib(attacked.pid) - before < 120
    await honest_play(attacked.url)


async def test_random_frames_disturb_nobody(attacked: ServerProcess) -> None:
    descriptors = attacked.descriptors()

    async def one(i: int) -> None:
        async with talk(attacked.url) as client:
            await begin(client, b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if i % 2 else b"")
            await client.send(os.urandom(1 + i * 37 % 4000))
            client.say_no_more()
            await client.rest()

    for start in range(0, 300, 30):
        await asyncio.gather(*(one(i) for i in range(start, start + 30)))
    await no_descriptors_left(attacked, descriptors)
    await honest_play(attacked.url)


async def test_refused_handshakes_leave_a_bounded_line_in_the_log(attacked: ServerProcess) -> None:
    async def send(head: bytes) -> int:
        async with talk(attacked.url) as client:
            await client.send(head + b"\r\n")
            return await client.status()

    away = PLAIN.replace(b"Host: localhost", b"Host: away.example.com")
    long = PLAIN + b"X-Long: " + b"x" * 9_000 + b"\r\n"
    heads = [(PLAIN.replace(b"/ws", b"/nothing"), 404), (away, 403), (BROKEN[0][1], 400), (long, 431)]
    before = len(attacked.events("socket_refused"))
    for head, status in heads * 5:
        assert await send(head) == status
    assert not attacked.events("library"), attacked.events("library")[0]
    lines = attacked.events("socket_refused")
    assert lines and len(lines) <= before + 2
    assert all(line["level"] == "info" and line["client"] == "127.0.0.1" for line in lines)


async def test_a_second_request_after_a_refused_handshake_is_not_read(attacked: ServerProcess) -> None:
    async with talk(attacked.url) as client:
        await client.send(BROKEN[0][1] + b"\r\n" + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert len(statuses(await client.rest())) == 1
