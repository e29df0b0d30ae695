"""What is kept of bodies and results: their JSON text without secrets, and large ones packed."""

from __future__ import annotations

import json
import struct
import zlib
from functools import lru_cache
from typing import Any

from orsay_protocol.sse import Decoder
from pydantic_core import from_json, to_json

__all__ = ["LARGE_CHARS", "Redactor", "input_of", "is_large", "pack", "redactor", "result_of", "unpack"]

LARGE_CHARS = 2048
"""Longer texts are packed and stand beside their row."""

_HIDDEN = "[secret]"
_SHORTEST = 4  # shorter values stand in too many words
_START = b"event: end\r\ndata: "
_END = b"\r\n\r\n"
_SHORT = 512  # bytes that compression would spare less than its own time is worth
_STORED = struct.Struct("<BHH")  # one block, the last, as it is (RFC 1951, 3.2.4)
_SUM = struct.Struct(">I")
_FAST = 1  # level of zlib: the next one makes them a tenth smaller in twice the time


def result_of(wire: bytes) -> str | None:
    """The JSON that the events ``chunk`` and ``end`` carry; None for no events."""
    if wire.startswith(_START) and wire.find(b"\n", len(_START)) == len(wire) - 3:  # nearly always
        return wire[len(_START) : -len(_END)].decode(errors="replace")
    events = Decoder().feed(wire)
    return "".join(event.data for event in events if event.event in ("chunk", "end")) if events else None


def input_of(kind: str, body: bytes) -> str:
    """The JSON of what a tool was called with; for other kinds the whole body."""
    if kind != "call":
        return body.decode(errors="replace")
    try:
        return to_json(from_json(body)["input"]).decode()
    except (ValueError, TypeError, KeyError):
        return _unusual_input(body)


def _unusual_input(body: bytes) -> str:
    """Of a body without input, or with half of a character that takes two."""
    try:
        found = json.loads(body)
        return json.dumps(found.get("input") if isinstance(found, dict) else found, separators=(",", ":"))
    except (ValueError, RecursionError):
        return body.decode(errors="replace")


def is_large(text: str) -> bool:
    """Whether it is to stand beside its row: long, or an image."""
    return len(text) > LARGE_CHARS or '"type":"image"' in text


def pack(text: str) -> bytes:
    """As ``large_values`` keeps it: zlib's format (RFC 1950)."""
    data = text.encode(errors="replace")
    if len(data) > _SHORT:
        return zlib.compress(data, _FAST)
    return b"\x78\x01" + _STORED.pack(1, len(data), len(data) ^ 0xFFFF) + data + _SUM.pack(zlib.adler32(data))


def unpack(data: bytes) -> str:
    """The text that was packed."""
    return zlib.decompress(data).decode()


class Redactor:
    """Takes the values of a session's secrets out of texts (S3), however JSON has spelled them."""

    def __init__(self, secrets: tuple[str, ...]) -> None:
        usable = {secret for secret in secrets if len(secret) >= _SHORTEST}
        self._secrets = sorted(usable, key=len, reverse=True)
        spellings = usable | {spelled for secret in usable for spelled in _spellings(secret)}
        self._spellings = sorted(spellings, key=len, reverse=True)  # the longest first: one may hold another

    def plain(self, text: str) -> str:
        """A text that is no JSON, though it may quote some."""
        for spelling in self._spellings:
            if spelling in text:
                text = text.replace(spelling, _HIDDEN)
        return text

    def json(self, text: str) -> str:
        """JSON stays JSON: texts, names and numbers that hold a secret are replaced where they stand."""
        if "\\" not in text and not any(secret in text for secret in self._secrets):
            return text  # without a backslash, JSON spells everything as it is
        try:
            found = json.loads(text)
            clean = self._clean(found)
            if clean == found:
                return text
            return json.dumps(clean, ensure_ascii=False, separators=(",", ":"))
        except (ValueError, RecursionError):  # no JSON, or too deep
            return self.plain(text)

    def _clean(self, found: Any) -> Any:
        if isinstance(found, str):
            return self.plain(found)
        if isinstance(found, dict):
            return {self.plain(key): self._clean(value) for key, value in found.items()}
        if isinstance(found, list):
            return [self._clean(value) for value in found]
        if isinstance(found, int | float) and not isinstance(found, bool) and str(found) in self._secrets:
            return _HIDDEN
        return found


def _spellings(secret: str) -> set[str]:
    """As JSON in a text spells it, and JSON in such JSON."""
    found = {secret}
    for _ in range(2):
        found |= {
            spelled
            for each in found
            for ascii_only in (True, False)
            for spelled in (json.dumps(each, ensure_ascii=ascii_only)[1:-1],)
        }
        found |= {each.replace("/", "\\/") for each in found}
    return found


@lru_cache(512)
def redactor(secrets: tuple[str, ...]) -> Redactor:
    """Of a session with these secrets."""
    return Redactor(secrets)
