"""Any text through a real server: byte for byte, wherever the stream is cut."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from orsay_protocol.sse import Decoder

from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import Reply

pytestmark = pytest.mark.process

_LETTERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_BLANKS = st.text(st.sampled_from(" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029\u3000x"), max_size=300)
_LINES = st.lists(st.sampled_from(["event: end", "data: {}", ": ping", "id: 1", "", "\r\n", "\n\n"])).map(
    "\n".join
)
TEXTS = st.builds(
    lambda piece, times, tail: piece * times + tail,
    st.one_of(_LETTERS, _BLANKS, _LINES),
    st.sampled_from([1, 1, 1, 150, 400]),
    st.one_of(_LETTERS, _BLANKS),
)
QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def player() -> Iterator[httpx.Client]:
    with (
        server(f"{ENVIRONMENTS}:Scripted", workers=2) as found,
        httpx.Client(base_url=found.url, timeout=20) as http,
    ):
        http.headers["X-Session-ID"] = "player"
        assert http.post("/create", json={"task_spec": {}}).status_code == 200
        yield http
        assert isinstance(found, ServerProcess) and found.code is None


@pytest.mark.conformance("D1")
@QUICK
@given(text=TEXTS, tool=st.sampled_from(["say", "say_later"]))
def test_any_text_arrives_as_it_was(player: httpx.Client, text: str, tool: str) -> None:
    arguments = {"text": text, **({"seconds": 0.06} if tool == "say_later" else {})}
    body = json.dumps({"name": tool, "input": arguments}).encode()
    reply = Reply(player.post("/call", content=body))
    assert reply.text == text
    for event in reply.events:
        assert event.data == event.data.strip() and event.data
    assert max(len(line) for line in reply.response.content.split(b"\r\n")) < 64 * 1024


@pytest.mark.conformance("D1")
@QUICK
@given(text=TEXTS, cuts=st.lists(st.integers(1, 5000), min_size=1, max_size=20))
def test_a_reader_may_take_the_stream_in_any_pieces(player: httpx.Client, text: str, cuts: list[int]) -> None:
    body = json.dumps({"name": "say", "input": {"text": text}}).encode()
    data = player.post("/call", content=body).content
    decoder, events, at, turn = Decoder(), [], 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        events += decoder.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert events == Decoder().feed(data)
    result = json.loads("".join(event.data for event in events[1:]))
    assert result["output"]["blocks"][0]["text"] == text


@pytest.mark.conformance("D1")
@QUICK
@given(text=_LETTERS)
def test_any_exception_text_arrives_line_by_line(player: httpx.Client, text: str) -> None:
    body = json.dumps({"name": "do", "input": {"how": f"say:{text}"}}).encode()
    reply = Reply(player.post("/call", content=body))
    assert reply.fault == "tool_error"
    lines = f"ValueError: {text}".replace("\r\n", "\n").replace("\r", "\n")
    assert reply.error == lines
