"""One call over streams that break in every way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from orsay_client import (
    AsyncClient,
    AsyncSession,
    ConnectionLost,
    Fault,
    Overloaded,
    ProtocolError,
    ResultTooLarge,
    Retry,
    SessionLost,
    TimeLimit,
    ToolError,
    UnknownTask,
    WorkerLost,
)
from orsay_protocol import TextBlock

from ..support.scripted_server import Handler, Reply, Request, ScriptedServer, good, ors

QUICK = Retry(tries=4, first_delay_s=0.01, max_delay_s=0.02)


@asynccontextmanager
async def playing(
    call: Handler, *, orsay: bool = False, retry: Retry = QUICK, **options: Any
) -> AsyncIterator[tuple[AsyncSession, ScriptedServer]]:
    async with (
        ScriptedServer(ors(call=call, orsay=orsay)) as server,
        AsyncClient(server.url, retry=retry, **options) as client,
        client.environment().session(task_spec={}) as session,
    ):
        yield session, server


def in_turn(*handlers: Callable[[Reply], Awaitable[None]]) -> Handler:
    """Each call is answered by the next handler; the last one stays."""
    left = list(handlers)

    async def handle(request: Request, reply: Reply) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(reply)

    return handle


async def cut(reply: Reply) -> None:
    reply.cut()


async def ok(reply: Reply) -> None:
    await reply.result(good("ok"))


async def task_id_then_end_of_stream(reply: Reply) -> None:
    await reply.stream()
    await reply.event("task_id", "t1")
    await reply.end()


def refuse(status: int, detail: str = "no", **headers: str) -> Callable[[Reply], Awaitable[None]]:
    async def handle(reply: Reply) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await reply.json({"detail": detail}, status, named)

    return handle


async def test_a_server_that_honours_keys_gets_the_same_key_again() -> None:
    async with playing(in_turn(cut, cut, ok), orsay=True) as (session, server):
        assert (await session.call("x")).blocks == [TextBlock(text="ok")]
        keys = [request.headers["idempotency-key"] for request in server.sent("/call")]
        assert len(keys) == 3 and len(set(keys)) == 1 and len(keys[0]) == 32
        await session.call("x")
        assert server.sent("/call")[-1].headers["idempotency-key"] != keys[0]


async def test_any_other_server_is_not_asked_twice() -> None:
    async with playing(in_turn(cut, ok)) as (session, server):
        with pytest.raises(ConnectionLost, match="the call may have run") as lost:
            await session.call("x")
        assert lost.value.may_have_run
        assert len(server.sent("/call")) == 1


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_an_answer_that_proves_nothing_is_a_lost_connection_elsewhere(status: int) -> None:
    async with playing(in_turn(refuse(status), ok)) as (session, server):
        with pytest.raises(ConnectionLost, match=f"status {status}; the call may have run"):
            await session.call("x")
        assert len(server.sent("/call")) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_with_keys_passing_troubles_are_retried(status: int) -> None:
    async with playing(in_turn(refuse(status), ok), orsay=True) as (session, server):
        await session.call("x")
        assert len(server.sent("/call")) == 2


async def test_answers_which_prove_that_nothing_ran_are_retried_everywhere() -> None:
    starting = refuse(503, X_Backend_State="starting", Retry_After="0")
    async with playing(in_turn(*[starting] * 20, refuse(429, Retry_After="0"), ok)) as (session, server):
        await session.call("x")
        assert len(server.sent("/call")) == 22


async def test_a_setup_without_end_is_a_time_limit() -> None:
    starting = refuse(503, X_Backend_State="starting", Retry_After="0")
    retry = Retry(starting_ride_out_s=0.2, first_delay_s=0.01)
    async with playing(in_turn(starting), retry=retry) as (session, _):
        with pytest.raises(TimeLimit, match="setup did not end"):
            await session.call("x")


async def test_after_the_task_id_the_call_is_attached_to() -> None:
    async with playing(in_turn(task_id_then_end_of_stream, cut, refuse(502), ok)) as (session, server):
        await session.call("x", {"a": 1})
        bodies = [request.json() for request in server.sent("/call")]
        assert bodies[0] == {"name": "x", "input": {"a": 1}}
        assert bodies[1:] == [{"name": "x", "input": {"a": 1}, "task_id": "t1"}] * 3


async def test_broken_streams_in_a_row_are_bounded() -> None:
    async with playing(in_turn(task_id_then_end_of_stream)) as (session, server):
        with pytest.raises(ConnectionLost, match="4 broken connections in a row") as lost:
            await session.call("x")
        assert lost.value.may_have_run
        assert len(server.sent("/call")) == 4


async def test_a_stream_that_lived_long_enough_is_no_failure() -> None:
    broken = 0

    async def call(request: Request, reply: Reply) -> None:
        nonlocal broken
        await reply.stream()
        await reply.event("task_id", "t1")
        if broken == 12:
            await reply.event("end", json.dumps(good("at last")))
            return await reply.end()
        broken += 1
        await asyncio.sleep(0.06)
        await reply.send(b": ping\r\n\r\n")
        return reply.cut()

    retry = Retry(tries=2, first_delay_s=0.01, progress_s=0.03)
    async with playing(call, retry=retry) as (session, _):
        assert (await session.call("x")).blocks == [TextBlock(text="at last")]


async def test_a_silent_stream_is_broken_and_comments_are_life() -> None:
    async def silent(reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", "t1")
        for _ in range(6):
            await asyncio.sleep(0.15)
            await reply.send(b": ping\r\n\r\n")
        await asyncio.sleep(30)

    async with playing(in_turn(silent, ok), silence_s=0.4) as (session, server):
        started = asyncio.get_running_loop().time()
        await session.call("x")
        assert 1.2 <= asyncio.get_running_loop().time() - started < 10
        assert len(server.sent("/call")) == 2


async def test_pieces_are_joined_and_only_the_last_connection_counts() -> None:
    text = json.dumps(good("one two three"))

    async def half(reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", "t1")
        await reply.event("chunk", text[:20])
        await reply.end()

    async def whole(reply: Reply) -> None:
        await reply.stream()
        await reply.send(b"\xef\xbb\xbf: hello\n\nretry: 5\nid: 7\nevent: progress\ndata: 50%\n\n")
        await reply.event("task_id", "t1")
        for piece in (text[:10], text[10:25]):
            await reply.event("chunk", piece)
        await reply.event("end", text[25:])
        await reply.end()

    async with playing(in_turn(half, whole)) as (session, _):
        assert (await session.call("x")).blocks == [TextBlock(text="one two three")]


async def test_a_lost_tail_after_the_result_is_no_loss() -> None:
    async def no_end(reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", "t1")
        await reply.event("end", json.dumps(good("ok")))
        await asyncio.sleep(0.05)
        reply.cut()

    async with playing(in_turn(no_end)) as (session, server):
        await session.call("x")
        assert len(server.sent("/call")) == 1


async def test_a_stream_left_open_after_its_result_does_not_hold_the_caller() -> None:
    async def open_end(reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", "t1")
        await reply.event("end", json.dumps(good("ok")))
        await asyncio.sleep(60)

    async with playing(in_turn(open_end)) as (session, _), asyncio.timeout(10):
        await session.call("x")


def failing(*events: tuple[str, str]) -> Handler:
    async def handle(request: Request, reply: Reply) -> None:
        await reply.stream()
        for event, data in events:
            await reply.event(event, data)
        await reply.end()

    return handle


def wire_fault(fault_class: str, retryable: bool) -> tuple[str, str]:
    fault = {"class": fault_class, "message": "m", "id": "f9", "retryable": retryable, "new": 1}
    return "fault", json.dumps(fault)


async def test_a_bare_error_is_an_error_of_the_tool() -> None:
    async with playing(failing(("task_id", "t"), ("error", "line one\nline two"))) as (session, _):
        with pytest.raises(ToolError) as fault:
            await session.call("x")
        assert fault.value.message == "line one\nline two" and not fault.value.retryable


async def test_a_fault_event_has_class_id_and_whether_to_retry() -> None:
    events = (("task_id", "t"), wire_fault("time_limit", True), ("error", "too slow"))
    async with playing(failing(*events)) as (session, _):
        with pytest.raises(TimeLimit, match="too slow") as fault:
            await session.call("x")
        assert (fault.value.id, fault.value.retryable) == ("f9", True)


async def test_a_lost_worker_ends_the_session_for_good() -> None:
    events = (("task_id", "t"), wire_fault("worker_lost", True), ("error", "the worker died"))
    async with playing(failing(*events)) as (session, server):
        for _ in range(2):
            with pytest.raises(WorkerLost, match="the worker died"):
                await session.call("x")
        assert len(server.sent("/call")) == 1


async def test_a_class_from_the_future_and_a_broken_fault_event() -> None:
    events = (("task_id", "t"), ("fault", "{"), wire_fault("gremlins", True), ("error", "x"))
    async with playing(failing(*events)) as (session, _):
        with pytest.raises(Fault) as fault:
            await session.call("x")
        assert fault.value.fault_class == "gremlins"


async def test_a_call_that_the_server_forgot_is_not_an_error_of_the_tool() -> None:
    async def forgotten(reply: Reply) -> None:
        await failing(("error", "unknown task_id"))(Request("", "", {}, b""), reply)

    async with playing(in_turn(task_id_then_end_of_stream, forgotten)) as (session, _):
        with pytest.raises(UnknownTask):
            await session.call("x")


@pytest.mark.parametrize("status", [404, 410])
async def test_a_session_that_is_gone_says_why_and_is_not_asked_again(status: int) -> None:
    async with playing(in_turn(refuse(status, "expired after 900 s"))) as (session, server):
        for _ in range(2):
            with pytest.raises(SessionLost, match="expired after 900 s"):
                await session.call("x")
        assert len(server.sent("/call")) == 1


async def test_a_full_server_is_overloaded_with_its_advice() -> None:
    async with playing(in_turn(refuse(429, "maximum capacity", Retry_After="3600"))) as (session, server):
        with pytest.raises(Overloaded, match="maximum capacity") as fault:
            await session.call("x")
        assert fault.value.retry_after_s == 3600
        assert len(server.sent("/call")) == 1


@pytest.mark.parametrize("orsay", [True, False])
async def test_an_answer_that_is_no_stream_is_an_error_of_the_protocol(orsay: bool) -> None:
    async def plain(reply: Reply) -> None:
        await reply.json({"ok": True})

    async with playing(in_turn(plain), orsay=orsay) as (session, server):
        with pytest.raises(ProtocolError, match="expected an event stream, got application/json"):
            await session.call("x")
        assert len(server.sent("/call")) == 1


async def test_a_result_that_is_no_json() -> None:
    async with playing(failing(("task_id", "t"), ("end", "{"))) as (session, _):
        with pytest.raises(ProtocolError, match="not JSON"):
            await session.call("x")


@pytest.mark.parametrize("event", ["chunk", "end"])
async def test_results_are_bounded(event: str) -> None:
    async def endless(request: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", "t")
        for _ in range(40):
            await reply.event(event, '"' + "x" * 20_000)
            if event == "end":
                break
        await reply.end()

    limit = 100_000 if event == "chunk" else 10_000
    async with playing(endless, max_answer_bytes=limit) as (session, _):
        with pytest.raises(ResultTooLarge, match=str(limit)):
            await session.call("x")


async def test_a_refused_connection_is_retried_since_nothing_was_sent() -> None:
    async with ScriptedServer(ors()) as server, AsyncClient(server.url, retry=QUICK) as client:
        session = client.environment().session(task_spec={})
        await session.open()
        await server.__aexit__(None, None, None)
        with pytest.raises(ConnectionLost, match="gave up after 4 tries; nothing was sent") as lost:
            await session.call("x")
        assert not lost.value.may_have_run


async def test_a_call_may_be_given_a_time() -> None:
    async def slow(reply: Reply) -> None:
        await reply.stream()
        await reply.event("task_id", "t")
        await asyncio.sleep(60)

    async with playing(in_turn(slow, ok)) as (session, _):
        with pytest.raises(TimeoutError):
            await session.call("x", timeout_s=0.1)
        await session.call("x")
