"""Output of containers as lines of the log."""

from __future__ import annotations

import struct

from orsay.runtimes.docker.output import Output


def frame(text: str | bytes, stream: int = 1) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">BxxxL", stream, len(data)) + data


class Lines:
    def __init__(self) -> None:
        self.logged: list[tuple[str, str]] = []
        self.dropped = 0
        self.output = Output(lambda stream, line: self.logged.append((stream, line)), self._drop)

    def _drop(self, count: int) -> None:
        self.dropped += count


def test_lines_are_put_together_whatever_the_pieces() -> None:
    lines = Lines()
    data = frame("one\ntw") + frame("oops\n", 2) + frame("o\nthree")
    for byte in data:
        lines.output.feed(bytes([byte]))
    assert lines.logged == [("stdout", "one"), ("stderr", "oops"), ("stdout", "two")]
    lines.output.end()
    assert lines.logged[-1] == ("stdout", "three")
    assert lines.output.last_lines == ["one", "oops", "two", "three"]


def test_what_a_terminal_would_act_on_is_taken_out() -> None:
    lines = Lines()
    lines.output.feed(frame(b"\x1b[31mred\x1b[0m \x07bell \x1b]0;title\x07 \xff\tend\r\n\n"))
    assert lines.logged == [("stdout", "red bell ]0;title \N{REPLACEMENT CHARACTER}\tend")]


def test_a_line_without_end_takes_no_more_than_its_bound() -> None:
    lines = Lines()
    for _ in range(100):
        lines.output.feed(frame("x" * 20_000))
    assert lines.logged
    assert all(len(line) < 17_000 for _, line in lines.logged)


def test_a_flood_is_counted_not_logged() -> None:
    lines = Lines()
    lines.output.feed(frame("again\n" * 20_000))
    lines.output.end()
    assert lines.dropped > 0
    assert len(lines.logged) + lines.dropped == 20_000
    assert lines.output.last_lines[-1] == "again"


def test_a_connection_that_begins_inside_a_frame_finds_the_next() -> None:
    lines = Lines()
    lines.output.feed(frame("first\nsec"))
    lines.output.reconnected()
    lines.output.feed(b"ond\n" + frame("third\n", 2) + frame("fourth\n"))
    assert [line for _, line in lines.logged] == ["first", "third", "secfourth"]
