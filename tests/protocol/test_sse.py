"""Results cross the stream byte for byte, at our decoder and at the parsers of released clients."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from orsay_protocol.sse import PIECE_BYTES, PING, Decoder, Event, StreamTooLong, encode_event, encode_result

CHARACTERS = st.characters(codec="utf-8")
# White space of every kind, what JSON escapes, letters of one to four bytes: trouble sits beside the cuts.
TROUBLE = st.sampled_from(' \t\n\r\x0b\x0c\x1c\x85\xa0\u2028\u2029\u3000\\":{}aé\u20ac😀')
TEXTS = st.one_of(st.text(CHARACTERS), st.text(TROUBLE, max_size=200))


@st.composite
def long_texts(draw: st.DrawFn) -> str:
    """Texts over several pieces, with trouble around each place where a piece may end."""
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        filler = draw(st.sampled_from(["a", " ", "é", "😀", "\n", "\\", "\u2028"]))
        size = draw(st.integers(-8, 8)) + draw(st.sampled_from([0, PIECE_BYTES // 2, PIECE_BYTES]))
        parts += [filler * max(0, size // len(json.dumps(filler, ensure_ascii=False)[1:-1].encode()))]
        parts.append(draw(st.text(TROUBLE, max_size=12)))
    return "".join(parts)


def compact(text: str) -> bytes:
    """A result as servers write it: compact JSON, letters beyond ASCII as they are."""
    return json.dumps({"ok": True, "text": text}, ensure_ascii=False, separators=(",", ":")).encode()


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """``data`` in pieces of the given sizes, over and over."""
    pieces: list[bytes] = []
    start = 0
    while start < len(data):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[start : start + size])
        start += size
    return pieces


def ours(pieces: list[bytes]) -> list[Event]:
    decoder = Decoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def released(data: bytes) -> list[Event]:
    """What released clients make of a stream.

    They take lines up to a line feed, ignore comments, need a colon in every other line, strip all white
    space from the start of a value, and drop events without a name.
    """
    events, name = [], ""
    values: list[str] = []
    for raw in data.split(b"\n")[:-1]:
        assert len(raw) < 64 * 1024
        line = raw.decode("utf-8", "ignore").rstrip("\r\n")
        if not line:
            if name:
                events.append(Event(name, "\n".join(values)))
            name, values = "", []
        elif not line.startswith(":"):
            field, value = line.split(":", 1)
            if field == "event":
                name = value.lstrip()
            elif field == "data":
                values.append(value.lstrip())
    return events


def text_of(events: list[Event]) -> object:
    assert [event.event for event in events[:-1]] == ["chunk"] * (len(events) - 1)
    assert events[-1].event == "end"
    return json.loads("".join(event.data for event in events))["text"]


@given(st.one_of(TEXTS, long_texts()), st.lists(st.integers(1, 9000), min_size=1, max_size=5))
@example(" " * 20_000, [1000])
@example(" " * (3 * PIECE_BYTES), [1])
def test_any_text_arrives_as_it_was(text: str, sizes: list[int]) -> None:
    stream = encode_event("task_id", "0" * 32) + PING + encode_result(compact(text)) + PING
    task_id, *events = ours(cut(stream, sizes))
    assert task_id == Event("task_id", "0" * 32)
    assert text_of(events) == text
    assert text_of(released(stream)[1:]) == text


@given(st.integers(-40, 40), st.text(TROUBLE, min_size=1, max_size=80))
def test_any_character_may_sit_beside_a_cut(offset: int, text: str) -> None:
    before = PIECE_BYTES - len(compact("")) + offset
    whole = "a" * before + text + "b" * PIECE_BYTES
    stream = encode_result(compact(whole))
    assert text_of(ours([stream])) == whole
    assert text_of(released(stream)) == whole


@given(TEXTS)
def test_a_plain_value_keeps_its_lines(text: str) -> None:
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    assert ours([encode_event("error", text)]) == [Event("error", lines)]
    stripped = "\n".join(line.lstrip() for line in lines.split("\n"))
    assert released(encode_event("error", text)) == [Event("error", stripped)]


@given(st.sampled_from(["\n", "\r", "\r\n"]), st.lists(st.integers(1, 4), min_size=1))
def test_every_line_end_of_the_standard_works_however_it_is_cut(end: str, sizes: list[int]) -> None:
    lines = [
        ":c",
        "event:a",
        "data: 1",
        "data:2",
        "",
        "data:  x",
        "",
        "event: b",
        "data",
        "",
        "id: 7",
        "",
        "",
        "",
    ]
    stream = end.join(lines).encode()
    assert ours(cut(stream, sizes)) == [Event("a", "1\n2"), Event("message", " x"), Event("b", "")]


@given(TEXTS, st.integers(0, 400))
def test_what_a_broken_stream_leaves_unfinished_is_no_event(text: str, keep: int) -> None:
    stream = encode_event("task_id", "t") + encode_result(compact(text))
    events = ours([stream[:keep]])
    assert all(event in ours([stream]) for event in events)
    if keep < len(stream) - 1:  # a carriage return alone ends a line too, and with it the event
        assert not events or events[-1].event != "end"


@given(st.binary(max_size=300), st.lists(st.integers(1, 20), min_size=1, max_size=3))
def test_any_bytes_give_the_same_events_however_they_are_cut(data: bytes, sizes: list[int]) -> None:
    assert ours(cut(data, sizes)) == ours([data])


def test_a_mark_of_byte_order_at_the_start_is_no_text() -> None:
    stream = b"\xef\xbb\xbfevent: a\ndata: 1\n\n"
    assert ours([stream]) == ours(cut(stream, [1])) == [Event("a", "1")]
    assert ours([b"data: 1\n\n\xef\xbb\xbfevent: a\ndata: 2\n\n"]) == [
        Event("message", "1"),
        Event("message", "2"),
    ]


@pytest.mark.parametrize("line", [b"x" * 100, b"data: " + b"x" * 94, b": " + b"x" * 98])
def test_a_line_without_end_is_refused(line: bytes) -> None:
    decoder = Decoder(max_event_bytes=1000)
    with pytest.raises(StreamTooLong, match="1000"):
        for _ in range(11):
            decoder.feed(line)


@pytest.mark.parametrize("line", [b"data: " + b"x" * 94 + b"\n", b"data:\n", b"data\n"])
def test_an_event_of_endless_lines_is_refused(line: bytes) -> None:
    decoder = Decoder(max_event_bytes=1000)
    with pytest.raises(StreamTooLong, match="1000"):
        for _ in range(1002):
            decoder.feed(line)


def test_the_bound_is_per_event_and_comments_cost_nothing() -> None:
    decoder = Decoder(max_event_bytes=1000)
    for _ in range(100):
        assert decoder.feed(b": " + b"x" * 900 + b"\r\n\r\n") == []
        assert decoder.feed(b"data: " + b"x" * 900 + b"\r\n\r\n") == [Event("message", "x" * 900)]
