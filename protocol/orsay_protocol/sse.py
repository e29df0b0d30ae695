"""Server-sent events as ORS uses them: named events, CRLF line ends, results in pieces.

The encoder respects what released clients do to a stream (they strip all white space from the start of
a data value, and some refuse long lines); the decoder follows the standard
(https://html.spec.whatwg.org/multipage/server-sent-events.html) and strips one space only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["PIECE_BYTES", "PING", "Decoder", "Event", "StreamTooLong", "encode_event", "encode_result"]

PIECE_BYTES = 32 * 1024
"""Longest data value of a result event in bytes; older aiohttp releases refuse lines over 128 KiB."""

PING = b": ping\r\n\r\n"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def encode_event(event: str, data: str) -> bytes:
    """One event. ``data`` may hold line breaks: each line becomes a ``data:`` line of its own."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    body = "".join(f"data: {line}\r\n" for line in lines)
    return f"event: {event}\r\n{body}\r\n".encode()


def encode_result(result: bytes) -> bytes:
    """The events ``chunk`` (none for a short result) and ``end`` that carry ``result``.

    ``result`` is compact JSON in UTF-8, so white space occurs inside strings only. No piece starts or
    ends with white space: a white-space character beside a cut is written as a JSON escape.
    """
    if len(result) <= PIECE_BYTES:
        return b"event: end\r\ndata: " + result + b"\r\n\r\n"
    pieces = list(_pieces(result))
    last = pieces.pop()
    chunks = b"".join(b"event: chunk\r\ndata: " + piece + b"\r\n\r\n" for piece in pieces)
    return chunks + b"event: end\r\ndata: " + last + b"\r\n\r\n"


def _pieces(result: bytes) -> Iterator[bytes]:
    start, prefix = 0, b""
    while len(result) - start > PIECE_BYTES:
        cut = _char_start(result, start + PIECE_BYTES)
        before, after = _char_start(result, cut - 1), _char_end(result, cut)
        piece = prefix + result[start:before] + _escaped(result[before:cut])
        prefix = _escaped(result[cut:after])
        start = after
        yield piece
    yield prefix + result[start:]


def _char_start(data: bytes, at: int) -> int:
    while at > 0 and data[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _char_end(data: bytes, at: int) -> int:
    at += 1
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at


def _escaped(char: bytes) -> bytes:
    text = char.decode()
    return b"\\u%04x" % ord(text) if text.isspace() else char


@dataclass(frozen=True, slots=True)
class Event:
    """A decoded event; ``event`` is ``message`` where the stream named none."""

    event: str
    data: str


class StreamTooLong(ValueError):
    """One event holds more bytes than the decoder's limit."""


class Decoder:
    """Incremental decoder of a byte stream into events.

    Only CR, LF and CRLF end a line: text may contain other Unicode line separators. An event is complete with
    its blank line; an incomplete event of a broken stream is dropped.
    """

    def __init__(self, max_event_bytes: int = 256 * 1024 * 1024) -> None:
        self._max = max_event_bytes
        self._line = bytearray()
        self._event = ""
        self._data: list[str] = []
        self._size = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[Event]:
        """Events completed by ``data``. Raises StreamTooLong past the limit."""
        if self._after_cr and data:
            self._after_cr = False
            if data[:1] == b"\n":
                data = data[1:]
        self._after_cr = data.endswith(b"\r")
        pieces = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events = []
        for piece in pieces[:-1]:
            self._line += piece
            event = self._end_line(bytes(self._line))
            self._line.clear()
            if event is not None:
                events.append(event)
        self._line += pieces[-1]
        if self._size + len(self._line) > self._max:
            raise StreamTooLong(f"an event of the stream is larger than {self._max} bytes")
        return events

    def _end_line(self, line: bytes) -> Event | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            return self._end_event()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._event = value.decode(errors="replace")
        elif field == b"data":
            self._size += len(value) + 1
            self._data.append(value.decode(errors="replace"))
        return None

    def _end_event(self) -> Event | None:
        event = Event(self._event or "message", "\n".join(self._data)) if self._event or self._data else None
        self._event, self._data, self._size = "", [], 0
        return event
