"""Requests, and what becomes of them when bytes, lines and sizes go wrong at random."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import h11

__all__ = ["mutated", "requests_in"]

_TOKENS = (
    b"\x00", b"\r", b"\n", b"\r\n", b"\t", b" ", b"\x0b", b"\x0c", b"\x7f", b"\x80", b"\xff", b":", b";",
    b",", b'"', b"0", b"-1", b"+1", b"0x10", b"1e9", b"99999999999999999999", b"chunked", b"identity",
    b"close", b"keep-alive", b"upgrade", b"HTTP/1.1", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.10", b"http/1.1",
    b"%00", b"%ED%A0%80", b"../", b"//", b"\r\n\r\n", b"\n\n", b"\r\n ", b"x" * 300, b"\xe2\x80\xa8",
    b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n",
)  # fmt: skip
_LINES = (
    b"Content-Length: 5", b"Content-Length: 0", b"Content-Length: 05", b"Content-Length: 5,5",
    b"Content-Length:\t3", b"Content-Length : 4", b"Content-Length: 3 ", b"content-length: 44",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: x, chunked", b"Transfer-Encoding: chunked, x",
    b"Transfer-Encoding : chunked", b"transfer-encoding:chunked", b"Transfer-Encoding: CHUNKED",
    b"Transfer-Encoding:\r\n chunked", b" folded: yes", b"Connection: close", b"Connection: upgrade",
    b"Connection: keep-alive, upgrade", b"Upgrade: websocket", b"Upgrade: h2c", b"Expect: 100-continue",
    b"Expect: x", b"Host: other", b"Host:", b"X-Session-ID: none", b"X-Session-ID: \xff", b"X-Api-Key: x",
    b"Trailer: Content-Length", b"TE: trailers", b"Content-Type: text/plain", b"Accept: text/event-stream",
    b"X-Long: " + b"y" * 5_000, b": nothing", b"no colon", b"X\x00: y", b"X: y\x00",
    b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Content-Encoding: gzip",
    b"Mcp-Session-Id: x", b"Keep-Alive: timeout=1", b"Range: bytes=0-1", b"X-Forwarded-For: ,,",
)  # fmt: skip
_METHODS = (
    b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PATCH", b"PRI", b"get",
    b"G", b"M-SEARCH", b"X" * 100,
)  # fmt: skip
_PATHS = (
    b"/health", b"/ready", b"/call", b"/create", b"/ping", b"/delete", b"/scripted/tasks", b"/tasks",
    b"/tools", b"/openapi.json", b"/metrics", b"/console", b"/console/api/trajectories?limit=1", b"/mcp",
    b"/ws", b"/reset", b"*", b"http://x/health", b"x", b"", b"/%zz", b"/\xc3\xa9", b"/health?a=b#c",
    b"//health", b"/health/", b"/a" * 2_000,
)  # fmt: skip
_BODIES = (
    b"", b"{}", b'{"split": "train"}', b'{"task_spec": {}}', b'{"name": "say", "input": {"text": "x"}}',
    b"\x00\xff", b"x" * 3_000,
)  # fmt: skip
_SIZES = (
    b"%x", b"%X", b"0%x", b"%x;a=b", b'%x;a="b\\""', b"%x ", b" %x", b"0x%x", b"-%x", b"%x\t;", b"%x\n",
    b"fffffffffffffffff%x",
)  # fmt: skip


_LOOSE = re.compile(rb"\r*\b([A-Z-]+) +(\S+) +(?=HTTP/)")  # a server may split this line at any white space


def _chunked(draw: random.Random, body: bytes) -> bytes:
    parts, at = [], 0
    while at < len(body):
        size = draw.randint(1, len(body) - at)
        form = _SIZES[0] if draw.random() < 0.9 else draw.choice(_SIZES)
        end = b"\r\n" if draw.random() < 0.97 else draw.choice([b"\n", b"", b"\r", b"\r\n\r\n"])
        parts.append(form % size + b"\r\n" + body[at : at + size] + end)
        at += size
    trailer = b"" if draw.random() < 0.8 else draw.choice(_LINES) + b"\r\n"
    return b"".join(parts) + b"0\r\n" + trailer + b"\r\n"


def _request(draw: random.Random) -> bytes:
    """Valid, nearly always."""
    method = (
        draw.choice((b"GET", b"POST", b"POST", b"POST")) if draw.random() < 0.8 else draw.choice(_METHODS)
    )
    path = draw.choice(_PATHS[:16]) if draw.random() < 0.8 else draw.choice(_PATHS)
    version = (
        b"HTTP/1.1"
        if draw.random() < 0.95
        else draw.choice((b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.2", b""))
    )
    lines = [b"%s %s %s" % (method, path, version), b"Host: localhost", b"X-Session-ID: fuzzed"]
    body = draw.choice(_BODIES) if method not in (b"GET", b"HEAD") else b""
    if draw.random() < 0.3:
        lines.append(b"Transfer-Encoding: chunked")
        body = _chunked(draw, body)
    elif body or method == b"POST":
        lines.append(b"Content-Length: %d" % len(body))
    lines += [draw.choice(_LINES) for _ in range(draw.choice((0, 0, 0, 1, 1, 2)))]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _insert(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.choice(_TOKENS) + data[at:]


def _replace(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(max(1, len(data)))
    return data[:at] + draw.choice(_TOKENS) + data[at + draw.randint(1, 8) :]


def _flip(draw: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(max(1, len(found)))
        found[at : at + 1] = bytes([draw.randrange(256)])
    return bytes(found)


def _cut(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _drop(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(max(1, len(data)))
    return data[:at] + data[at + draw.randint(1, 20) :]


def _double(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    end = draw.randint(at, min(len(data), at + 60))
    return data[:end] + data[at:]


def _bare(draw: random.Random, data: bytes) -> bytes:
    end = draw.choice((b"\n", b"\r", b"\r\r\n", b"\n\r"))
    return data.replace(b"\r\n", end, draw.choice((1, 2, -1)))


def _line(draw: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\r\n")
    lines.insert(draw.randint(1, max(1, len(lines))), draw.choice(_LINES))
    return b"\r\n".join(lines)


def _noise(draw: random.Random, data: bytes) -> bytes:
    return draw.randbytes(draw.randint(1, 600)) + (data if draw.random() < 0.5 else b"")


_MUTATIONS: Sequence[Callable[[random.Random, bytes], bytes]] = (
    _insert, _insert, _replace, _flip, _cut, _drop, _double, _bare, _line, _line, _noise,
)  # fmt: skip


def mutated(draw: random.Random) -> list[bytes]:
    """What one client sends, in the pieces in which it does."""
    data = b"".join(_request(draw) for _ in range(draw.choice((1, 1, 1, 2, 3))))
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        data = draw.choice(_MUTATIONS)(draw, data)
    how = draw.random()
    if how < 0.7 or not data:
        return [data]
    if how < 0.95:
        cuts = sorted(draw.randrange(len(data) + 1) for _ in range(draw.randint(1, 6)))
        return [data[at:end] for at, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return [data[at : at + 1] for at in range(min(len(data), 400))] + [data[400:]]


def requests_in(data: bytes) -> int | None:
    """How many requests a stricter reader finds before an error; None where it cannot judge."""
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    reader.receive_data(_LOOSE.sub(rb"\1 \2 ", data.lstrip(b"\r\n")))
    found = 0
    try:
        while True:
            event = reader.next_event()
            if isinstance(event, h11.Request):
                found += 1
                if any(name == b"upgrade" for name, _ in event.headers) or event.method == b"CONNECT":
                    return None
            elif event is h11.NEED_DATA:
                return found
            elif event is h11.PAUSED:
                if reader.their_state is not h11.DONE:
                    return None
                reader.send(h11.Response(status_code=200, headers=[(b"content-length", b"0")]))
                reader.send(h11.EndOfMessage())
                if reader.our_state is h11.MUST_CLOSE:
                    return found
                reader.start_next_cycle()
            elif isinstance(event, h11.ConnectionClosed):
                return found
    except h11.RemoteProtocolError as error:
        if "Host" in str(error):  # which of them is meant, the server asks elsewhere
            return None
        return found + (error.error_status_hint == 501)  # an unknown coding: answered by its head, or refused
    except h11.LocalProtocolError:
        return None
