"""Nothing is corrupted, nothing runs twice: D1 to D5 over real sockets."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from orsay_protocol.sse import Decoder

from ..support.author_log import Log
from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import Api, api_for
from ..support.sockets import connect, raw_request, send_and_vanish

pytestmark = pytest.mark.process


@pytest.mark.conformance("D1")
@pytest.mark.parametrize("tool", ["say", "say_later"], ids=["one write", "stream"])
@pytest.mark.parametrize(
    "text", [" " * 20_000, "\n" * 40_000, "\u2028 \u3000" * 20_000, "é" * 70_000, "\x00\x1f\x7f"]
)
async def test_a_text_arrives_as_it_was(api: Api, tool: str, text: str) -> None:
    await api.create()
    reply = await api.call(tool, text=text)
    assert reply.text == text
    for event in reply.events:
        assert event.data == event.data.strip(), "a released client would strip this piece"
    await api.delete()


@pytest.mark.conformance("D1")
async def test_a_stream_may_be_cut_anywhere(served: ServerProcess, api: Api) -> None:
    await api.create()
    text = " \u00a0x" * 20_000
    reader, writer = await connect(served.url)
    writer.write(
        raw_request(
            "/call", api.sid, {"name": "say_later", "input": {"text": text, "seconds": 1}}, Connection="close"
        )
    )
    data = await reader.read(-1)
    writer.close()
    body, rest = b"", data.partition(b"\r\n\r\n")[2]
    while rest:  # chunked transfer
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    decoder, events = Decoder(), []
    for at in range(0, len(body), 7):
        events += decoder.feed(body[at : at + 7])
    result = json.loads("".join(event.data for event in events if event.event in ("chunk", "end")))
    assert result["output"]["blocks"][0]["text"] == text
    await api.delete()


# at most once


async def call_and_break(served: ServerProcess, api: Api, log: Log, key: str | None) -> dict[str, str]:
    """Start a call that waits, and break its connection; returns the headers that repeat it."""
    await api.create(log=str(log.path))
    body = {"name": "add_later", "input": {"gate": log.gate("open")}}
    headers = {"Idempotency-Key": key} if key else {}
    await send_and_vanish(served.url, raw_request("/call", api.sid, body, **headers))
    await log.has("add")
    return headers


@pytest.mark.conformance("D2")
@pytest.mark.parametrize("key", [None, "key-1"], ids=["same body", "idempotency key"])
async def test_a_retry_after_a_break_before_the_task_id_attaches_to_the_running_call(
    served: ServerProcess, api: Api, log: Log, key: str | None
) -> None:
    headers = await call_and_break(served, api, log, key)
    await asyncio.sleep(0.05)  # the server notices the broken connection
    retry = asyncio.ensure_future(api.call("add_later", gate=log.gate("open"), headers=headers))
    await asyncio.sleep(0.1)
    log.open("open")
    assert (await retry).text == "1"
    assert log.count("add") == 1
    await api.delete()


@pytest.mark.conformance("D2")
@pytest.mark.parametrize("key", [None, "key-1"], ids=["same body", "idempotency key"])
async def test_a_retry_after_a_break_attaches_to_the_finished_call(
    served: ServerProcess, api: Api, log: Log, key: str | None
) -> None:
    headers = await call_and_break(served, api, log, key)
    await asyncio.sleep(0.05)
    log.open("open")
    await asyncio.sleep(0.1)
    assert (await api.call("add_later", gate=log.gate("open"), headers=headers)).text == "1"
    assert log.count("add") == 1
    await api.delete()


@pytest.mark.conformance("D2")
async def test_with_a_key_a_call_that_was_answered_is_answered_again(api: Api, log: Log) -> None:
    await api.create(log=str(log.path))
    first = await api.call("add", headers={"Idempotency-Key": "one"})
    again = await api.call("add", headers={"Idempotency-Key": "one"})
    other = await api.call("add", headers={"Idempotency-Key": "two"})
    assert (first.text, again.text, other.text) == ("1", "1", "2")
    assert first.task_id == again.task_id != other.task_id
    await api.delete()


@pytest.mark.conformance("D2")
async def test_twenty_requests_with_one_key_at_once_run_one_call(api: Api, log: Log) -> None:
    await api.create(log=str(log.path))
    calls = [
        asyncio.ensure_future(api.call("add_later", gate=log.gate("open"), headers={"Idempotency-Key": "k"}))
        for _ in range(20)
    ]
    await log.has("add")
    log.open("open")
    assert {(await call).text for call in calls} == {"1"}
    assert log.count("add") == 1
    await api.delete()


@pytest.mark.conformance("D2")
async def test_the_same_call_made_twice_on_purpose_runs_twice(api: Api) -> None:
    await api.create()
    assert [(await api.call("add")).text for _ in range(3)] == ["1", "2", "3"]
    await api.delete()


@pytest.mark.conformance("D2")
async def test_a_key_is_good_for_its_session_only(api: Api) -> None:
    one, two = await api.create(), await api.other().create()
    for each in (one, two):
        assert (await each.call("add", headers={"Idempotency-Key": "same"})).text == "1"
        await each.delete()


@pytest.mark.conformance("D3")
@pytest.mark.parametrize("reward", ["nan", "inf", "-inf"])
async def test_a_reward_that_is_no_number_reaches_the_client_as_an_error(api: Api, reward: str) -> None:
    await api.create()
    reply = await api.call("pay", reward=reward)
    assert reply.fault == "bad_reward" and "'pay'" in reply.error
    await api.delete()


@pytest.mark.conformance("D4")
async def test_a_finished_episode_takes_no_calls(api: Api) -> None:
    await api.create()
    assert (await api.call("win")).result["output"]["finished"] is True
    assert (await api.call("add")).result["reason"] == "episode_finished"
    assert await api.ping() == 200
    await api.delete()


# reading again


@pytest.mark.conformance("D5")
async def test_a_result_can_be_read_again_by_its_task_id(api: Api) -> None:
    await api.create()
    first = await api.call("say", text=" spaces " * 10_000)
    for _ in range(3):
        again = await api.attach(first.task_id)
        assert again.response.content == first.response.content
    await api.delete()


@pytest.mark.conformance("D5")
async def test_many_may_wait_for_one_call(api: Api, log: Log) -> None:
    await api.create(log=str(log.path))
    reading = asyncio.ensure_future(_first_event(api, log))
    task_id = await reading
    others = [asyncio.ensure_future(api.attach(task_id)) for _ in range(5)]
    log.open("open")
    assert {(await other).text for other in others} == {"1"}
    assert log.count("add") == 1
    await api.delete()


async def _first_event(api: Api, log: Log) -> str:
    body = {"name": "add_later", "input": {"gate": log.gate("open")}}
    async with api.http.stream("POST", "/call", json=body, headers={"X-Session-ID": api.sid}) as response:
        decoder = Decoder()
        async for data in response.aiter_raw():
            for event in decoder.feed(data):
                assert event.event == "task_id"
                return event.data
    raise AssertionError("no event")


@pytest.mark.conformance("D5")
@pytest.mark.parametrize("task_id", ["", "0" * 32, "../etc", "🙂"])
async def test_an_unknown_task_id_is_an_error_and_runs_nothing(api: Api, log: Log, task_id: str) -> None:
    await api.create(log=str(log.path))
    reply = await api.attach(task_id)
    assert reply.fault == "unknown_task_id" and reply.error == "unknown task_id"
    assert [event.event for event in reply.events] == ["fault", "error"]
    await api.delete()


@pytest.mark.conformance("D5", "S5")
async def test_a_result_is_read_by_its_own_session_and_endpoint_only(api: Api) -> None:
    one, two = await api.create(), await api.other().create()
    task_id = (await one.call("say", text="private")).task_id
    assert (await two.attach(task_id)).fault == "unknown_task_id"
    assert (await one.attach(task_id, "/score_group")).fault == "unknown_task_id"
    assert (await one.attach(task_id)).text == "private"
    await one.delete()
    await two.delete()


@pytest.mark.conformance("D5", "I6")
async def test_stored_results_are_bounded_by_count_size_and_age() -> None:
    with server(
        f"{ENVIRONMENTS}:Scripted",
        stored_results_per_session=3,
        stored_bytes_per_session=5000,
        stored_age_s=1,
    ) as bounded:
        async with api_for(bounded.url) as api:
            await api.create()
            ids = [(await api.call("say", text=str(n))).task_id for n in range(5)]
            kept = [(await api.attach(task_id)).events[-1].event == "end" for task_id in ids]
            assert kept == [False, False, True, True, True]
            big = [(await api.call("fill", size=2000)).task_id for _ in range(3)]
            kept = [(await api.attach(task_id)).events[-1].event == "end" for task_id in big]
            assert kept == [False, True, True]
            async with asyncio.timeout(10):
                while (await api.attach(big[-1])).events[-1].event == "end":
                    await asyncio.sleep(0.2)
            await api.delete()


@pytest.mark.conformance("D5")
async def test_stored_results_are_bounded_over_all_sessions() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", stored_bytes=5000) as bounded:
        async with api_for(bounded.url) as api:
            sessions = [await api.other().create() for _ in range(4)]
            ids = [(await each.call("fill", size=2000)).task_id for each in sessions]
            kept = [
                (await each.attach(task_id)).events[-1].event == "end"
                for each, task_id in zip(sessions, ids, strict=True)
            ]
            assert sum(kept) <= 2, "more is stored than the setting allows"
            assert kept[-1]


@pytest.mark.conformance("P-5.4-comments")
async def test_long_calls_are_kept_alive_by_comments(log: Log) -> None:
    with server(f"{ENVIRONMENTS}:Scripted", stream_ping_s=0.2) as quick:
        async with api_for(quick.url) as api:
            await api.create(log=str(log.path))
            start = time.monotonic()
            call = asyncio.ensure_future(api.call("add_later", gate=log.gate("open")))
            await log.has("add")
            await asyncio.sleep(2.0)
            log.open("open")
            reply = await call
            took_s = time.monotonic() - start
            assert reply.text == "1"
            comments = [line for line in reply.response.text.split("\n") if line.startswith(":")]
            assert 3 <= len(comments) <= took_s / 0.2 + 1
