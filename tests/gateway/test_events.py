"""Events and results as they pass through: any stream, cut anywhere."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from orsay.runtimes.remote.events import EventReader, TextTracker, TooLong, guarded, has_space_at_edge
from orsay.runtimes.remote.results import NotANumber, NotAResult, read_result
from orsay_protocol.sse import Decoder, encode_event, encode_result

LIMIT = 1_000_000
SPACES = [" ", "\t", "\u3000", "\u2028", "\x85", "\xa0", "a", "é", '"', "\\", "\U0001f600"]
TEXT = st.lists(st.sampled_from(SPACES), max_size=30).map("".join)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["task_id", "chunk", "end", "log"]), st.text(max_size=40)), max_size=6
    ),
    st.lists(st.integers(0, 10_000), max_size=8),
)
def test_events_as_ors_writes_them_come_out_as_they_went_in(
    payload: list[tuple[str, str]], places: list[int]
) -> None:
    stream = b": ping\r\n\r\n".join(encode_event(name, data) for name, data in payload)
    reader = EventReader(LIMIT)
    passed = [event for piece in cut(stream, places) for event in reader.feed(piece)]
    meant = Decoder().feed(stream)
    assert [(event.name, event.data.decode()) for event in passed] == [(e.event, e.data) for e in meant]
    assert b"".join(event.raw for event in passed) == stream.replace(b": ping\r\n\r\n", b"")


@given(
    st.lists(
        st.sampled_from(["event: chunk", "event:chunk", "data: x", "data:x", "data", ": c", "id: 3", ""]),
        max_size=12,
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.lists(st.integers(0, 10_000), max_size=8),
)
def test_events_in_any_spelling_mean_the_same_afterwards(
    lines: list[str], line_end: str, places: list[int]
) -> None:
    stream = "".join(line + line_end for line in [*lines, "", ""]).encode()
    reader = EventReader(LIMIT)
    passed = [event for piece in cut(stream, places) for event in reader.feed(piece)]
    meant = [event for event in Decoder().feed(stream) if event.event != "message"]
    assert [(event.name, event.data.decode()) for event in passed] == [(e.event, e.data) for e in meant]
    assert Decoder().feed(b"".join(event.raw for event in passed)) == meant


def test_an_event_without_end_is_not_collected_for_ever() -> None:
    reader = EventReader(1000)
    with pytest.raises(TooLong):
        for _ in range(100):
            reader.feed(b"event: chunk\r\ndata: " + b"x" * 100)


@example(text='  "', places=[9, 23])  # cut inside an escape
@given(TEXT, st.lists(st.integers(0, 10_000), max_size=6))
def test_no_white_space_of_a_text_is_lost_on_clients_that_strip(text: str, places: list[int]) -> None:
    whole = json.dumps({"a": text, "b": [text]}, ensure_ascii=False, separators=(",", ":"))
    edges = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    pieces = [whole[start:end].encode() for start, end in pairwise(edges)]
    tracker, passed = TextTracker(), []
    for piece in pieces:
        guarded_piece = guarded(piece, tracker) if has_space_at_edge(piece) else piece
        tracker.pass_over(piece)
        passed.append(guarded_piece.decode())
    assert json.loads("".join(piece.strip() for piece in passed)) == {"a": text, "b": [text]}


@given(TEXT)
def test_white_space_between_tokens_is_no_text(text: str) -> None:
    whole = json.dumps({"a": text, "b": [text]}, ensure_ascii=False, indent=1).replace("\n", " ")
    for at in range(len(whole)):
        tracker = TextTracker()
        first, second = whole[:at].encode(), whole[at:].encode()
        passed = [guarded(first, tracker)]
        tracker.pass_over(first)
        passed.append(guarded(second, tracker))
        assert json.loads("".join(piece.decode().strip() for piece in passed)) == {"a": text, "b": [text]}


# results

NUMBER = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-5, 5))


def result(reward: float | None, finished: bool, text: str = "") -> bytes:
    output = {"blocks": [{"text": text}], "metadata": None, "reward": reward, "finished": finished}
    return json.dumps({"ok": True, "output": output}, ensure_ascii=False, separators=(",", ":")).encode()


@given(NUMBER, st.booleans(), TEXT, st.booleans(), st.lists(st.integers(0, 10_000), max_size=5))
def test_reward_and_finished_are_read_wherever_the_result_is_cut(
    reward: float | None, finished: bool, text: str, ours: bool, places: list[int]
) -> None:
    pieces = [piece for piece in cut(result(reward, finished, text), places) if piece]
    assert read_result(pieces, ours=ours) == (None if reward is None else float(reward), finished)


@pytest.mark.parametrize("ours", [True, False])
def test_a_text_that_looks_like_the_end_of_a_result_is_a_text(ours: bool) -> None:
    text = ',"reward":1.0,"finished":true}}'
    assert read_result([result(None, False, text)], ours=ours) == (None, False)
    assert read_result([result(0.5, False, text * 3)], ours=ours) == (0.5, False)
    refused = json.dumps({"ok": False, "error": text, "reason": "not_found"}, separators=(",", ":")).encode()
    assert read_result([refused], ours=ours) == (None, False)


def test_results_in_other_spellings_are_read_whole() -> None:
    payload = {"output": {"finished": True, "reward": 2, "blocks": []}, "ok": True, "more": {"reward": 9}}
    for ours in (True, False):
        assert read_result([json.dumps(payload, indent=2).encode()], ours=ours) == (2.0, True)
        assert read_result([json.dumps({"ok": True, "output": {}}).encode()], ours=ours) == (None, False)
        text = json.dumps({"ok": True, "output": {"reward": "many", "finished": 1}}).encode()
        assert read_result([text], ours=ours) == (None, False)


@pytest.mark.parametrize("data", [b"", b"no", b"[]", b"{}", b'{"ok":true,"output":{'])
@pytest.mark.parametrize("ours", [True, False])
def test_what_is_no_result_is_reported(data: bytes, ours: bool) -> None:
    with pytest.raises(NotAResult):
        read_result([data], ours=ours)


@pytest.mark.parametrize("reward", [b"1e999", b"-1e999", b"1" + b"0" * 400, b"NaN", b"Infinity"])
@pytest.mark.parametrize("ours", [True, False])
def test_a_reward_beyond_a_float_is_none(reward: bytes, ours: bool) -> None:
    data = b'{"ok":true,"output":{"blocks":[],"metadata":null,"reward":' + reward + b',"finished":true}}'
    with pytest.raises(NotANumber):
        read_result([data], ours=ours)


def test_our_own_results_are_read_in_pieces() -> None:
    data = result(-1.5e-7, True, "x" * 100_000)
    events = Decoder().feed(encode_result(data))
    assert len(events) > 2
    assert read_result([event.data.encode() for event in events], ours=True) == (-1.5e-7, True)
