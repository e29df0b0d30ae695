"""Forwarding of server-sent events: split, inspected, and passed on as the original bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orsay_protocol.sse import Decoder, encode_event

__all__ = ["EventReader", "Passed", "TextTracker", "TooLong", "guarded", "has_space_at_edge"]

_CRLF = b"\r\n"
_LINE_END = re.compile(rb"\r\n|\n|\r(?=[^\n])")


class TooLong(ValueError):
    """An event is over the size limit."""


@dataclass(slots=True)
class Passed:
    """One event: name, data, and raw bytes."""

    name: str
    data: bytes
    raw: bytes


class EventReader:
    """Splits a stream into events, without comments.

    Events in the form that ORS servers write keep their bytes. Other valid forms (LF line ends, no space
    after the colon, other fields, several data lines) are encoded again.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._line_end: bytes | None = None

    def feed(self, data: bytes) -> list[Passed]:
        """Events completed by ``data``. Raises TooLong."""
        if self._buffer:
            self._buffer += data
            source: bytes | bytearray = self._buffer
        else:
            source = data
        if self._line_end is None:
            first = _LINE_END.search(source)
            if first is None:
                return self._keep(source, 0)
            self._line_end = first.group()
        end_of_event = self._line_end * 2
        start = 0
        events: list[Passed] = []
        while (end := source.find(end_of_event, max(start, self._searched))) >= 0:
            end += len(end_of_event)
            self._event(bytes(source[start:end]), events)
            start = end
        self._keep(source, start)
        return events

    def _keep(self, source: bytes | bytearray, start: int) -> list[Passed]:
        if source is not self._buffer or start:
            self._buffer = bytearray(source[start:])
        if len(self._buffer) > self._max:
            raise TooLong(f"one event of more than {self._max} bytes")
        self._searched = max(0, len(self._buffer) - 3)
        return []

    def _event(self, raw: bytes, events: list[Passed]) -> None:
        self._searched = 0
        if raw.startswith(b"event: ") and self._line_end == _CRLF:
            name_end = raw.find(_CRLF)
            if raw.startswith(b"data: ", name_end + 2) and raw.find(b"\n", name_end + 2) == len(raw) - 3:
                data = raw[name_end + 8 : -4]
                events.append(Passed(raw[7:name_end].decode(errors="replace"), data, raw))
                return
        for event in Decoder(self._max).feed(raw):
            if event.event != "message":
                anew = encode_event(event.event, event.data)
                events.append(Passed(event.event, event.data.encode(), anew))


def guarded(piece: bytes, before: TextTracker) -> bytes:
    """``piece`` with white space at its edges escaped, which released clients would strip.

    Only white space inside a JSON string matters; ``before`` has tracked the earlier pieces.
    """
    first = _first(piece)
    if before.in_text and first.isspace():
        piece = _escape(first) + piece[len(first.encode()) :]
    last = _last(piece)
    if last.isspace() and before.ends_in_text(piece):
        piece = piece[: -len(last.encode())] + _escape(last)
    return piece


def has_space_at_edge(piece: bytes) -> bool:
    """True if ``guarded`` may change the piece."""
    if not piece:
        return False
    first, last = piece[0], piece[-1]
    if 32 < first < 127 and 32 < last < 127:
        return False
    return _first(piece).isspace() or _last(piece).isspace()


class TextTracker:
    """Tracks whether the end of a partial JSON document lies inside a string."""

    def __init__(self) -> None:
        self.in_text = False
        self.pieces = 0
        self._escape = b""

    def pass_over(self, piece: bytes) -> None:
        self.pieces += 1
        self.in_text, self._escape = self._after(piece)

    def ends_in_text(self, piece: bytes) -> bool:
        """True if the end of this next piece would lie inside a string."""
        return self._after(piece)[0]

    def _after(self, piece: bytes) -> tuple[bool, bytes]:
        """``in_text`` after the piece, and a final backslash of an incomplete escape."""
        piece = self._escape + piece
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        escape = b"\\" if backslashes % 2 else b""
        piece = piece[: len(piece) - len(escape)]
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        return self.in_text != bool(piece.count(b'"') % 2), escape


def _first(piece: bytes) -> str:
    return piece[:4].decode(errors="ignore")[:1]


def _last(piece: bytes) -> str:
    at = len(piece) - 1
    while at > 0 and piece[at] & 0xC0 == 0x80:
        at -= 1
    return piece[at:].decode(errors="ignore")[:1]


def _escape(char: str) -> bytes:
    return b"\\u%04x" % ord(char)
