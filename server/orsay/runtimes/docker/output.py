"""Log lines from a container's output: cut, redacted, and limited in rate."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable

from orsay_protocol.redact import Redactor, redact

__all__ = ["Output"]

_HEADER = 8  # of a frame: stream, three zeroes, length
_STREAMS = {0: "stdout", 1: "stdout", 2: "stderr"}
_LONGEST_LINE = 16_000
_LONGEST_ESCAPE = 6  # of one character, in what is commonly written
_KEPT_LINES = 30
_LINES_PER_S = 500
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FRAME = re.compile(rb"[\x01\x02]\x00\x00\x00", re.DOTALL)


class Output:
    """Parser of the raw frames of an attached container; used from one thread.

    ``hide`` gives the redactors, applied before a line is cut.
    ``on_line`` gets the stream and the text of each line, of 16000 characters at most; lines over the rate
    limit of a second are only counted, and ``on_dropped`` gets the count.
    """

    def __init__(
        self,
        on_line: Callable[[str, str], None],
        on_dropped: Callable[[int], None] = lambda count: None,
        hide: Callable[[], Iterable[Redactor]] = tuple,
    ) -> None:
        self._on_line = on_line
        self._hide = hide
        self._on_dropped = on_dropped
        self._raw = bytearray()
        self._partial: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._second = 0
        self._lines = 0
        self._dropped = 0

    @property
    def last_lines(self) -> list[str]:
        """The last lines."""
        return list(self._last)

    def reconnected(self) -> None:
        """Note a new connection: the next bytes continue no earlier frame."""
        self._raw.clear()

    def feed(self, data: bytes) -> None:
        raw = self._raw
        raw += data
        while len(raw) >= _HEADER:
            stream = _STREAMS.get(raw[0])
            if stream is None or raw[1:4] != b"\0\0\0":
                self._seek()
                continue
            size = int.from_bytes(raw[4:_HEADER], "big")
            if len(raw) < _HEADER + size:
                return
            self._take(stream, raw[_HEADER : _HEADER + size])
            del raw[: _HEADER + size]

    def _seek(self) -> None:
        """Find the start of a frame: a connection made while the container wrote may begin inside one."""
        match = _FRAME.search(self._raw, 1)
        del self._raw[: match.start() if match else len(self._raw)]

    def _take(self, stream: str, data: bytearray) -> None:
        partial = self._partial[stream]
        partial += data
        *lines, rest = partial.split(b"\n")
        self._partial[stream] = rest
        for line in lines:
            self._log_line(stream, line)
        if len(rest) > 4 * _LONGEST_LINE:
            at = self._cut(rest)
            self._log_line(stream, rest[:at])
            del rest[:at]

    def _cut(self, rest: bytearray) -> int:
        """Position to cut an overlong line outside of any secret, even an incomplete one."""
        hides = [hide for hide in self._hide() if hide]
        if not hides:
            return len(rest)
        text = rest.decode(errors="surrogateescape")
        at = len(text) - min(_LONGEST_ESCAPE * max(hide.longest for hide in hides), len(text) // 2)
        for _ in hides:
            at = min(hide.split(text, at) for hide in hides)
        return len(text[:at].encode(errors="surrogateescape")) or len(rest)

    def end(self) -> None:
        """End the streams: log incomplete lines."""
        for stream, rest in self._partial.items():
            if rest:
                self._log_line(stream, rest)
                rest.clear()
        if self._dropped:
            self._on_dropped(self._dropped)
            self._dropped = 0

    def _log_line(self, stream: str, line: bytes | bytearray) -> None:
        text = _ESCAPES.sub("", line.decode(errors="replace")).rstrip()
        if not text:
            return
        text = redact(text, self._hide())
        if len(text) > _LONGEST_LINE:
            text = f"{text[:_LONGEST_LINE]}… ({len(text)} characters)"
        self._last.append(text)
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
            if self._dropped:
                self._on_dropped(self._dropped)
                self._dropped = 0
        self._lines += 1
        if self._lines > _LINES_PER_S:
            self._dropped += 1
        else:
            self._on_line(stream, text)
