"""Inputs that a model may have written: each is refused as an answer, by every server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from orsay_client import AsyncClient, AsyncSession, BadRequest, Client, Retry, ToolRefused, errors
from orsay_protocol import Message, TextBlock, ToolCallBlock

from tests.support.servers import running

from ..support.odd_inputs import INPUTS, NAMES, inputs
from ..support.scripted_server import Reply, Request, ScriptedServer, ors
from .test_peers import Peer, command

pytestmark = pytest.mark.process

QUICK = Retry(first_delay_s=0.05, max_delay_s=0.2)
SERVERS = (
    ("orsay", "local"),
    ("orsay", "process"),
    pytest.param(("openreward", "0.1.167"), marks=pytest.mark.venv),
    pytest.param(("ors-sdk", "0.1.0"), marks=pytest.mark.venv),
)


@asynccontextmanager
async def session_at(url: str) -> AsyncIterator[AsyncSession]:
    """A session of the first environment there."""
    async with AsyncClient(url, retry=QUICK) as client, client.environment().session(task_spec={}) as session:
        yield session


@pytest.fixture(scope="module", params=SERVERS, ids=lambda peer: "-".join(peer))
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    package, version = request.param
    with running(command(package, version)) as server:
        yield Peer(package, version, server.url)


async def test_an_input_that_no_server_takes_is_a_refused_call(peer: Peer) -> None:
    async with session_at(peer.url) as session:
        for what, odd in INPUTS.items():
            if what == "over the limit of a body" and not peer.ours:
                continue  # they take it
            with pytest.raises(ToolRefused) as refused:
                await session.call("echo", odd)
            assert refused.value.reason == "input_validation", what
            refused.value.message.encode()
        assert (await session.call("echo", {"text": "well"})).blocks == [TextBlock(text="well")]


async def test_a_name_that_no_tool_has_is_a_refused_call(peer: Peer) -> None:
    async with session_at(peer.url) as session:
        for what, name in NAMES.items():
            with pytest.raises(ToolRefused) as refused:
                await session.call(name, {"text": "x"})
            assert refused.value.reason in ("not_found", "input_validation"), what
        assert (await session.call("echo", {"text": "well"})).blocks == [TextBlock(text="well")]


def test_whatever_a_call_is_made_with_it_is_answered(peer: Peer) -> None:
    with Client(peer.url, retry=QUICK) as client, client.environment().session(task_spec={}) as session:

        @settings(
            max_examples=60,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(odd=inputs())
        def play(odd: Any) -> None:
            try:
                output = session.call("echo", odd)
            except ToolRefused:
                return
            assert isinstance(odd["text"], str) and output.blocks == [TextBlock(text=odd["text"])]

        play()
        assert session.call("echo", {"text": "well"}).blocks == [TextBlock(text="well")]


async def test_candidates_that_no_server_takes_are_refused_and_the_session_goes_on(peer: Peer) -> None:
    if not peer.new:
        pytest.skip("this server scores no groups")

    def saying(*, input: Any) -> list[Message]:
        return [Message(role="assistant", blocks=[ToolCallBlock(id="1", name="echo", input=input)])]

    odd = ["half of a pair", "NaN", "5,000 digits", "nested 3000"]
    if peer.ours:
        odd += ["nested 250", "over the limit of a body"]
    async with session_at(peer.url) as session:
        for what in odd:
            with pytest.raises(ToolRefused, match="not accepted"):
                await session.score_group([saying(input={}), saying(input=INPUTS[what])])
        assert [score.reward for score in await session.score_group([saying(input={})])] == [1.0]


@pytest.mark.parametrize("what", ["half of a pair", "NaN", "5,000 digits", "nested 3000"])
async def test_a_task_that_cannot_be_sent_is_a_bad_request(peer: Peer, what: str) -> None:
    async with AsyncClient(peer.url, retry=QUICK) as client:
        with pytest.raises(BadRequest, match="cannot be sent as JSON") as refused:
            await client.environment().session(task_spec=INPUTS[what]).open()
        assert refused.value.status is None


async def test_the_last_message_is_handed_in_whatever_characters_it_has(peer: Peer) -> None:
    if not peer.terminal:
        pytest.skip("this server has no terminal tools")
    async with session_at(peer.url) as session:
        output = await session.call_terminal("4\ud8002 \ud83d\ude00")
        assert output.blocks == [TextBlock(text="answered 4\ufffd2 😀")] and output.finished


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("html", [False, True], ids=["a server", "a proxy"])
async def test_an_answer_that_the_body_is_no_input_is_a_refused_call(status: int, html: bool) -> None:
    async def refuse(request: Request, reply: Reply) -> None:
        if html:
            await reply.raw(b"<html>no</html>", status, {"Content-Type": "text/html"})
        else:
            await reply.json({"detail": "nothing like that"}, status)

    async with ScriptedServer(ors(call=refuse)) as server:
        async with session_at(server.url) as session:
            with pytest.raises(ToolRefused, match=str(status) if html else "nothing like that"):
                await session.call("echo", {"text": "x"})
        assert len(server.sent("/call")) == 1


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (401, {}, errors.Unauthorized),
        (403, {}, errors.Unauthorized),
        (404, {}, errors.SessionLost),
        (405, {}, errors.BadRequest),
        (409, {}, errors.BadRequest),
        (410, {}, errors.SessionLost),
        (415, {}, errors.BadRequest),
        (431, {}, errors.BadRequest),
        (400, {"X-Orsay-Fault": "task_error"}, errors.BadRequest),
    ],
)
async def test_an_answer_that_is_about_more_than_the_input_ends_more_than_the_call(
    status: int, headers: dict[str, str], error: type[errors.OrsayClientError]
) -> None:
    async def refuse(request: Request, reply: Reply) -> None:
        await reply.json({"detail": "no"}, status, headers)

    async with ScriptedServer(ors(call=refuse)) as server, session_at(server.url) as session:
        with pytest.raises(error):
            await session.call("echo", {"text": "x"})


async def test_a_call_that_has_begun_is_not_reported_as_refused() -> None:
    async def begin_then_refuse(request: Request, reply: Reply) -> None:
        if "task_id" in request.json():
            await reply.json({"detail": "what is that?"}, 422)
            return
        await reply.stream()
        await reply.event("task_id", "a" * 32)
        reply.cut()

    async with (
        ScriptedServer(ors(call=begin_then_refuse)) as server,
        AsyncClient(server.url, retry=QUICK) as client,
        client.environment().session(task_spec={}) as session,
    ):
        with pytest.raises(BadRequest, match="what is that"):
            await session.call("echo", {"text": "x"})
