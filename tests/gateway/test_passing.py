"""Streams as they pass: piece by piece, untouched where that is right, whatever the upstream does to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from orsay.runtimes.remote.options import RemoteOptions
from orsay_protocol.headers import encode_secrets
from orsay_protocol.sse import Decoder, Event, encode_event

from ..support.gateways import QUICK, reached, wild
from ..support.scripted_server import Reply, Request, ScriptedServer, good
from ..support.session_api import Api

pytestmark = pytest.mark.process

TASK = "c" * 32
Handler = Callable[[Request, Reply], Awaitable[None]]


@asynccontextmanager
async def playing(
    call: Handler, *, ours: bool = False, options: RemoteOptions = QUICK
) -> AsyncIterator[tuple[Api, ScriptedServer]]:
    """A session at a scripted server whose ``/call`` is ``call``, through a gateway."""

    handler = wild(call, ours=ours)
    async with ScriptedServer(handler) as behind, reached(behind.url, options=options) as (_, api):
        await api.create("wild")
        yield api, behind
        await api.delete()


async def streamed(api: Api, body: dict[str, object]) -> AsyncIterator[bytes]:
    headers = {"X-Session-ID": api.sid}
    async with api.http.stream("POST", "/wild/call", json=body, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for piece in answer.aiter_bytes():
            yield piece


BODY: dict[str, object] = {"name": "act", "input": {"a": 1}}
RESULT = json.dumps(good("x" * 100, reward=0.5), separators=(",", ":"))


async def until_event(pieces: AsyncIterator[bytes], name: str) -> list[Event]:
    """Events up to the first of that name."""
    decoder, events = Decoder(), []
    async for piece in pieces:
        events += decoder.feed(piece)
        if events and events[-1].event == name:
            return events
    raise AssertionError(f"no {name} in {events}")


async def test_a_piece_is_passed_on_before_the_upstream_has_the_next_and_read_again_from_the_first() -> None:
    go = asyncio.Event()

    async def call(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", TASK)
        await reply.event("chunk", RESULT[:40])
        await reply.event("log", "half of it")
        await go.wait()
        await reply.event("chunk", RESULT[40:80])
        await reply.event("end", RESULT[80:])
        await reply.end()

    async with playing(call) as (api, _):
        first = streamed(api, BODY)
        events = await until_event(first, "log")
        assert [(event.event, event.data) for event in events[1:]] == [
            ("chunk", RESULT[:40]),
            ("log", "half of it"),
        ]
        own = events[0].data
        assert events[0].event == "task_id" and own != TASK
        second = streamed(api, {**BODY, "task_id": own})
        again = await until_event(second, "log")
        assert again == events
        go.set()
        for pieces in (first, second):
            rest = Decoder().feed(b"".join([piece async for piece in pieces]))
            assert [(event.event, event.data) for event in rest] == [
                ("chunk", RESULT[40:80]),
                ("end", RESULT[80:]),
            ]
        reply = await api.attach(own, "/wild/call")
        assert [event.event for event in reply.events] == ["task_id", "chunk", "log", "chunk", "end"]


async def test_a_stream_that_breaks_goes_on_where_it_was() -> None:
    async def call(request: Request, reply: Reply) -> None:
        attached = "task_id" in request.json()
        await reply.stream()
        await reply.event("task_id", TASK)
        await reply.event("chunk", RESULT[:40])
        await reply.event("chunk", RESULT[40:80])
        if not attached:
            await asyncio.sleep(0.2)  # the pieces are out, and passed on
            reply.cut()
            return
        await reply.event("end", RESULT[80:])
        await reply.end()

    async with playing(call) as (api, behind):
        reply = await api.call("act", a=1)
        assert [event.data for event in reply.events[1:]] == [RESULT[:40], RESULT[40:80], RESULT[80:]]
        bodies = [request.json() for request in behind.sent("/wild/call")][1:]
        assert bodies == [
            {"name": "act", "input": {"a": 1}},
            {"name": "act", "input": {"a": 1}, "task_id": TASK},
        ]
        keys = {request.headers["idempotency-key"] for request in behind.sent("/wild/call")[1:]}
        assert len(keys) == 1


async def test_another_result_after_a_break_is_a_fault_and_no_mixture() -> None:
    async def call(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", TASK)
        if "task_id" not in request.json():
            await reply.event("chunk", RESULT[:40])
            await asyncio.sleep(0.2)
            reply.cut()
        else:
            await reply.event("chunk", "y" + RESULT[:40])
            await reply.event("end", RESULT[40:])
            await reply.end()

    async with playing(call) as (api, _):
        reply = await api.call("act")
        assert reply.fault == "internal" and "another result" in reply.error


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "other"])
async def test_before_the_task_id_a_call_is_repeated_only_where_it_runs_once_all_the_same(ours: bool) -> None:
    async def call(request: Request, reply: Reply) -> None:
        calls.append(request.headers["idempotency-key"])
        if len(calls) == 1:
            reply.cut()
        else:
            await reply.result(good("once", reward=1.0))

    calls: list[str] = []
    async with playing(call, ours=ours) as (api, behind):
        reply = await api.call("act")
        if ours:
            assert reply.text == "once" and len(calls) == 2 and len(set(calls)) == 1
            return
        assert reply.fault == "worker_lost" and "may have run" in reply.error
        assert len(calls) == 1
        assert await api.ping() == 410
        async with asyncio.timeout(10):
            while not behind.sent("/delete"):
                await asyncio.sleep(0.01)


async def test_a_stream_that_always_breaks_is_given_up_and_is_no_reward() -> None:
    async def call(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", TASK)
        reply.cut()

    async with playing(call) as (api, behind):
        reply = await api.call("act")
        assert reply.fault == "worker_lost" and "tries" in reply.error
        assert 3 < len(behind.sent("/wild/call")) < 12
        assert await api.ping() == 410


async def test_a_silent_stream_counts_as_broken_and_comments_as_life() -> None:
    attached: list[bool] = []

    async def call(request: Request, reply: Reply) -> None:
        attached.append("task_id" in request.json())
        await reply.stream()
        await reply.event("task_id", TASK)
        if not attached[-1]:
            for _ in range(4):
                await asyncio.sleep(0.4)
                await reply.send(b": still there\r\n\r\n")
            await asyncio.sleep(3)
        else:
            await reply.event("end", RESULT)
            await reply.end()

    options = replace(QUICK, silence_s=1.0)
    async with playing(call, options=options) as (api, _):
        started = asyncio.get_running_loop().time()
        assert (await api.call("act")).result["output"]["reward"] == 0.5
        assert attached == [False, True]
        assert asyncio.get_running_loop().time() - started > 1.6


async def test_streams_in_other_spellings_become_plain_ones() -> None:
    pieces = [RESULT[:50], RESULT[50:]]
    spelled = (
        b"retry: 100\nid: 7\nevent:task_id\ndata:" + TASK.encode() + b"\n\n: a comment\n\n"
        b"event:chunk\nid: 8\ndata:" + pieces[0].encode() + b"\n\ndata: nameless\n\n"
        b"event:end\ndata:" + pieces[1].encode() + b"\n\n"
    )

    async def call(request: Request, reply: Reply) -> None:
        await reply.stream()
        for at in range(0, len(spelled), 7):
            await reply.send(spelled[at : at + 7])
        await reply.end()

    async with playing(call) as (api, _):
        answer = await api.post("/wild/call", BODY)
        own = Decoder().feed(answer.content)[0].data
        expected = [("task_id", own), ("chunk", pieces[0]), ("end", pieces[1])]
        assert answer.content == b"".join(encode_event(name, data) for name, data in expected)


async def test_white_space_between_the_tokens_of_a_result_is_left_alone() -> None:
    text = json.dumps(good("a  b"), indent=1).replace("\n", " ")
    cut = text.index('"output"') - 1  # between two tokens

    async def call(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", TASK)
        await reply.send(b"event: chunk\r\ndata: " + text[:cut].encode() + b"\r\n\r\n")
        await reply.send(b"event: end\r\ndata: " + text[cut:].encode() + b"\r\n\r\n")
        await reply.end()

    async with playing(call) as (api, _):
        reply = await api.call("act")
        stripped = "".join(event.data.strip() for event in reply.events[1:])  # as released clients read it
        assert json.loads(stripped) == good("a  b")


async def test_an_answer_that_is_no_stream_is_a_fault_that_names_the_upstream() -> None:
    async def call(request: Request, reply: Reply) -> None:
        await reply.json({"ok": True})

    async with playing(call) as (api, behind):
        reply = await api.call("act")
        assert reply.fault == "internal" and behind.url.removeprefix("http://") in reply.error


@pytest.mark.parametrize("result", ["no JSON", "[1]", '{"blocks": []}'])
async def test_a_result_that_is_none_is_a_fault_and_no_reward(result: str) -> None:
    async def call(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", TASK)
        await reply.event("end", result)
        await reply.end()

    async with playing(call) as (api, _):
        assert (await api.call("act")).fault == "internal"


async def test_a_session_that_the_upstream_does_not_have_any_more_is_lost() -> None:
    async def call(request: Request, reply: Reply) -> None:
        await reply.json({"detail": "Active environment not found"}, 404)

    async with playing(call) as (api, _):
        reply = await api.call("act")
        assert reply.fault == "worker_lost" and "does not have it any more" in reply.error
        assert await api.ping() == 410


async def test_errors_of_an_upstream_are_distinguished() -> None:
    answers = {
        "busy": (429, {"Retry-After": "7"}, {"detail": "maximum capacity"}),
        "broken": (500, {}, {"detail": "ValueError: x"}),
        "key": (401, {}, {"detail": "Invalid API key"}),
        "odd": (418, {}, {"detail": "a teapot"}),
    }

    async def call(request: Request, reply: Reply) -> None:
        status, headers, body = answers[request.json()["name"]]
        await reply.json(body, status, headers)

    async with playing(call) as (api, _):
        busy = await api.call("busy")
        assert busy.status == 429 and busy.response.headers["Retry-After"] == "7"
        assert (await api.call("broken")).fault == "tool_error"
        key = await api.call("key")
        assert key.fault == "internal" and "API key" in key.error
        assert (await api.call("odd")).status == 400


async def test_secrets_in_the_words_of_an_upstream_are_blotted_out(capfd: pytest.CaptureFixture[str]) -> None:
    async def call(request: Request, reply: Reply) -> None:
        if request.json()["name"] == "refuse":
            await reply.json({"detail": "no swordfish-1234 here"}, 418)
            return
        await reply.stream()
        await reply.event("task_id", TASK)
        await reply.event("error", "cannot log in with swordfish-1234")
        await reply.end()

    async with ScriptedServer(wild(call)) as behind, reached(behind.url) as (_, api):
        body = {"env_name": "wild", "task_spec": {}}
        secrets = encode_secrets({"token": "swordfish-1234"})
        assert (await api.post("/create", body, **{"X-Secrets": secrets})).status_code == 200
        assert (await api.call("act")).error == "cannot log in with [secret]"
        assert (await api.call("refuse")).detail == "no [secret] here"
        await api.delete()
    assert "swordfish" not in "".join(capfd.readouterr())


async def test_labels_of_any_letters_arrive_as_they_were() -> None:
    async def call(request: Request, reply: Reply) -> None:
        await reply.result(good("ok"))

    async with ScriptedServer(wild(call)) as behind, reached(behind.url) as (_, api):
        body = {"env_name": "wild", "task_spec": {}}
        label = "größe 7".encode().decode("latin-1")  # headers are bytes; so read, it is what httpx sends
        created = await api.http.post(
            "/create",
            json=body,
            headers=[(b"X-Session-ID", api.sid.encode()), (b"X-Orsay-Run", "größe 7".encode())],
        )
        assert created.status_code == 200
        assert behind.sent("/create")[0].headers["x-orsay-run"] == label
        await api.delete()


async def test_a_result_over_the_limit_is_refused_while_it_comes() -> None:
    async def call(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", TASK)
        while True:
            await reply.event("chunk", "x" * 10_000)
            await asyncio.sleep(0)

    options = replace(QUICK, max_result_bytes=200_000)
    async with playing(call, options=options) as (api, _):
        reply = await api.call("act")
        assert reply.fault == "result_too_large" and "200000" in reply.error


async def test_a_proxy_on_the_way_that_answers_for_the_server_is_asked_again() -> None:
    answered: dict[str, int] = {}

    def at_second(handler: Handler) -> Handler:
        async def handle(request: Request, reply: Reply) -> None:
            answered[request.path] = answered.get(request.path, 0) + 1
            if answered[request.path] == 1:
                await reply.raw(b"<html>Bad Gateway</html>", 502, {"Content-Type": "text/html"})
            else:
                await handler(request, reply)

        return handle

    async def call(request: Request, reply: Reply) -> None:
        await reply.result(good("got through", reward=1.0))

    async def create(request: Request, reply: Reply) -> None:
        await reply.json({"sid": request.headers["x-session-id"]}, headers={"X-Orsay-State": "ready"})

    async def prompt(request: Request, reply: Reply) -> None:
        await reply.json([{"text": "go", "detail": None, "type": "text"}])

    async def count(request: Request, reply: Reply) -> None:
        await reply.json({"num_tasks": 3})

    handlers = {"create": create, "prompt": prompt, "num_tasks": count}
    flaky = {name: at_second(handler) for name, handler in handlers.items()}
    handler = wild(at_second(call), ours=True, **flaky)
    async with ScriptedServer(handler) as behind, reached(behind.url) as (_, api):
        await api.create("wild")
        assert (await api.get("/prompt")).json()[0]["text"] == "go"
        assert (await api.call("act")).text == "got through"
        assert (await api.post("/num_tasks", {"split": "train"})).json() == {"num_tasks": 3}
        await api.delete()
    assert answered == dict.fromkeys(("/create", "/prompt", "/call", "/num_tasks"), 2)


async def test_redirects_are_followed_within_the_server_and_keep_the_body() -> None:
    async def moved(request: Request, reply: Reply) -> None:
        await reply.raw(b"", 308, {"Location": "/wild/elsewhere"})

    async def elsewhere(request: Request, reply: Reply) -> None:
        assert request.json()["name"] == "act" and request.headers["idempotency-key"]
        await reply.result(good("moved"))

    async with ScriptedServer(wild(moved, elsewhere=elsewhere)) as behind:
        async with reached(behind.url) as (_, api):
            await api.create("wild")
            assert (await api.call("act")).text == "moved"
            assert (await api.call("act")).text == "moved"
        assert len(behind.sent("/wild/elsewhere")) >= 2


async def test_a_redirect_to_another_server_is_not_followed() -> None:
    async def moved(request: Request, reply: Reply) -> None:
        await reply.raw(b"", 307, {"Location": "http://127.0.0.1:9/wild/call"})

    async with playing(moved) as (api, _):
        reply = await api.call("act")
        assert reply.fault == "internal" and "redirects to http://127.0.0.1:9" in reply.error
