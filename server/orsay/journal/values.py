"""Stored form of bodies and results: JSON text, compressed if large."""

from __future__ import annotations

import json
import struct
import zlib

from orsay_protocol.sse import Decoder
from pydantic_core import from_json, to_json

__all__ = ["LARGE_CHARS", "input_of", "is_large", "pack", "result_of", "unpack"]

LARGE_CHARS = 2048
"""Longer texts are compressed, and stored in ``large_values``."""

_START = b"event: end\r\ndata: "
_END = b"\r\n\r\n"
_SHORT = 512  # bytes; compressing less is not worth the time
_STORED = struct.Struct("<BHH")  # a single stored block (RFC 1951, 3.2.4)
_SUM = struct.Struct(">I")
_FAST = 1  # zlib level: the next one takes twice the time for a tenth less


def result_of(wire: bytes) -> str | None:
    """The JSON that the events ``chunk`` and ``end`` carry; None for no events."""
    if wire.startswith(_START) and wire.find(b"\n", len(_START)) == len(wire) - 3:  # nearly always
        return wire[len(_START) : -len(_END)].decode(errors="replace")
    events = Decoder().feed(wire)
    return "".join(event.data for event in events if event.event in ("chunk", "end")) if events else None


def input_of(kind: str, body: bytes) -> str:
    """The JSON of a tool's input; for other kinds the whole body."""
    if kind != "call":
        return body.decode(errors="replace")
    try:
        return to_json(from_json(body)["input"]).decode()
    except (ValueError, TypeError, KeyError):
        return _unusual_input(body)


def _unusual_input(body: bytes) -> str:
    """Input of a body that has none, or that holds half of a surrogate pair."""
    try:
        found = json.loads(body)
        return json.dumps(found.get("input") if isinstance(found, dict) else found, separators=(",", ":"))
    except (ValueError, RecursionError):
        return body.decode(errors="replace")


def is_large(text: str) -> bool:
    """True for a value that is stored beside its row: long, or an image."""
    return len(text) > LARGE_CHARS or '"type":"image"' in text


def pack(text: str) -> bytes:
    """Compressed form of a value in ``large_values``: zlib's format (RFC 1950)."""
    data = text.encode(errors="replace")
    if len(data) > _SHORT:
        return zlib.compress(data, _FAST)
    return b"\x78\x01" + _STORED.pack(1, len(data), len(data) ^ 0xFFFF) + data + _SUM.pack(zlib.adler32(data))


def unpack(data: bytes) -> str:
    """The uncompressed text."""
    return zlib.decompress(data).decode()
