"""Calls that are answered without a task: by hand over raw connections, on a runtime that the test scripts.

What the test does between two awaits happens within one turn of the server's event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from orsay.errors import Faulted, Overloaded
from orsay.http.cycle import Cycle
from orsay.http.pending import PendingRequest
from orsay.journal.write.writer import Writer
from orsay.runtimes.execution.event_loop import new_event_loop
from orsay.serving.assembly import Running
from orsay.sessions.call import Call
from pydantic import SecretStr
from structlog.testing import capture_logs

from ..support.gateways import gateway_of
from ..support.sessions import ScriptedHandle, ScriptedOperation, ScriptedRuntime, ended
from ..support.sockets import raw_request
from ..support.waiting import until
from .hostile import WAIT_S, Talk, talk

TASK_ID = re.compile(rb"event: task_id\r\ndata: (\w+)\r\n\r\n")


@dataclass
class Answer:
    status: int
    head: bytes
    body: bytes

    @property
    def task_id(self) -> bytes:
        found = TASK_ID.match(self.body)
        assert found is not None, self
        return found[1]

    @property
    def result(self) -> bytes:
        """Of a call that went well: what the runtime returned."""
        assert self.status == 200, self
        return b"".join(re.findall(rb"event: (?:chunk|end)\r\ndata: (.*)\r\n\r\n", self.body))

    @property
    def streamed(self) -> bool:
        return b"transfer-encoding: chunked" in self.head


async def read(client: Talk) -> Answer:
    """The next answer of the connection."""
    async with asyncio.timeout(WAIT_S):
        head = await client.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        body = b"" if length is None else await client.reader.readexactly(int(length[1]))
        while length is None:
            size = int(await client.reader.readline(), 16)
            body += (await client.reader.readexactly(size + 2))[:-2]
            if not size:
                break
    return Answer(int(head.split()[1]), head, body)


def request(number: int = 0, *, sid: str = "a", **headers: str) -> bytes:
    """A call; equal numbers make equal bodies."""
    return raw_request("/call", sid, {"name": "act", "input": {"number": number}}, **headers)


def number_of(operation: ScriptedOperation) -> int:
    found: int = json.loads(operation.body)["input"]["number"]
    return found


@dataclass
class Stage:
    """A server in this process, whose only session is ``a``."""

    running: Running
    runtime: ScriptedRuntime
    handle: ScriptedHandle

    @property
    def url(self) -> str:
        return self.running.url

    @property
    def started(self) -> list[ScriptedOperation]:
        return self.handle.started

    @property
    def calls(self) -> list[Call]:
        [session] = self.running.sessions.live.values()
        return [] if session.calls is None else list(session.calls._by_id.values())

    async def comes(self, count: int) -> ScriptedOperation:
        """The operation of that number, counted from 1, as soon as it is started; none follows."""
        await until(lambda: len(self.started) >= count)
        assert len(self.started) == count
        return self.started[-1]

    def answer_all(self) -> asyncio.Task[None]:
        """From now on each call returns its number a moment after it came."""

        async def answer(done: int) -> None:
            while True:
                await asyncio.sleep(0.001)
                while done < len(self.started):
                    done += 1
                    end(self.started[done - 1])

        return asyncio.create_task(answer(len(self.started)))


def end(operation: ScriptedOperation) -> None:
    """The tool returns its number."""
    operation.on_result(ended(str(number_of(operation))), None)


@asynccontextmanager
async def stage(**settings: object) -> AsyncIterator[Stage]:
    runtime = ScriptedRuntime()
    async with gateway_of(runtime, **{"journal": "off", **settings}) as running:
        await create(running, "a")
        yield Stage(running, runtime, runtime.last)


async def create(running: Running, sid: str) -> None:
    async with talk(running.url) as client:
        body = {"env_name": "rooms", "split": "train", "index": 0}
        await client.send(raw_request("/create", sid, body, **KEY))
        assert (await read(client)).status == 200


KEY = {"X-API-Key": "key"}  # for servers that have keys


def under_uvloop(test: Callable[..., Any]) -> Callable[..., None]:
    """The order of events within a turn is that of the server's own loop."""

    def run(**given: Any) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(test(**given))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


# a call runs once, and each request that repeats it gets its outcome


async def test_an_equal_call_after_a_delivered_retry_is_a_new_one() -> None:
    """The first connection broke, and its task notices only after the retry was answered."""
    async with stage(stream_after_s=0.02) as server:
        for count, slow in ((1, False), (3, True)):
            async with talk(server.url) as first:
                await first.send(request(count))
                operation = await server.comes(count)
                if slow and operation.progress is not None:
                    operation.progress(b"")
                assert TASK_ID.search(await first.reader.readuntil(b"\r\n\r\n\r\n"))  # it is a stream by now
            await until(lambda: server.calls[-1].abandoned)
            async with talk(server.url) as client:
                await client.send(request(count))
                await until(lambda: not server.calls[-1].abandoned)
                end(operation)
                assert (await read(client)).result == b"%d" % count
                await client.send(request(count))
                end(await server.comes(count + 1))
                assert (await read(client)).result == b"%d" % count


@pytest.mark.parametrize("break_off", ["close", "abort"])
async def test_an_outcome_for_a_closing_connection_is_kept_for_the_retry(break_off: str) -> None:
    """uvicorn hears of the end of a connection one turn after its transport."""
    async with stage() as server:
        async with talk(server.url) as client:
            await client.send(request())
            operation = await server.comes(1)
            [connection] = cast("Any", server.running)._http.server_state.connections
            getattr(connection.transport._transport, break_off)()
            end(operation)
            assert await client.rest() == b""
        async with talk(server.url) as client:
            await client.send(request())
            answer = await read(client)
        assert (answer.task_id.decode(), answer.result) == (server.calls[0].task_id, b"0")
        assert len(server.started) == 1


async def test_a_call_whose_client_vanished_is_found_by_the_next_request() -> None:
    async with stage() as server:
        for ended_before in (True, False):
            count = len(server.started) + 1
            async with talk(server.url) as client:
                await client.send(request(count))
                operation = await server.comes(count)
            await until(lambda: server.calls[-1].abandoned)
            if ended_before:
                end(operation)
            async with talk(server.url) as client:
                await client.send(request(count))
                if not ended_before:
                    await until(lambda: not server.calls[-1].abandoned)
                    end(operation)
                assert (await read(client)).result == b"%d" % count
            assert len(server.started) == count
        assert server.running.sessions.totals.abandoned == 0


async def test_one_key_at_the_same_time_on_two_connections_is_one_call() -> None:
    async with stage() as server, talk(server.url) as one, talk(server.url) as two, talk(server.url) as late:
        key = {"Idempotency-Key": "k"}
        await asyncio.gather(one.send(request(1, **key)), two.send(request(1, **key)))
        operation = await server.comes(1)
        await until(lambda: len(cast("Any", server.calls[0])._readers) == 2)
        await late.send(request(2, **key))
        assert (await read(late)).status == 409
        end(operation)
        answers = [await read(one), await read(two)]
        await late.send(request(1, **key))
        answers.append(await read(late))
        assert {each.task_id.decode() for each in answers} == {server.calls[0].task_id}
        assert len(server.started) == 1


# requests in advance


async def test_requests_in_advance_are_answered_in_their_order() -> None:
    async with stage() as server, talk(server.url) as client:
        parts = [request(number) for number in range(30)]
        parts[7:7] = [raw_request("/ping", "a", None), raw_request("/call", "a", "no call")]
        await client.send(b"".join(parts))
        answers = []
        for count in range(30):
            operation = await server.comes(count + 1)
            assert number_of(operation) == count  # none before the answer to the one before
            if count == 3 and operation.progress is not None:
                operation.progress(b"")
                await asyncio.sleep(0.01)
            if count == 5:
                operation.on_result(None, Faulted("tool_error", "5"))
            elif count == 6:
                operation.on_result(None, Overloaded("6"))
            else:
                end(operation)
            answers.append(await read(client))
            if count == 6:
                answers += [await read(client), await read(client)]
        assert [each.status for each in answers] == [200] * 6 + [429, 200, 422] + [200] * 23
        results = [each.result for each in answers if TASK_ID.match(each.body)]
        assert results == [b"" if number == 5 else b"%d" % number for number in range(30) if number != 6]
        assert [each.streamed for each in answers].index(True) == 3


async def test_a_stored_outcome_is_given_to_as_many_requests_as_may_come_in_advance() -> None:
    async with stage() as server, talk(server.url) as client:
        server.handle.answers = [ended("1")]
        await client.send(request(1, **{"Idempotency-Key": "k"}) * 33)
        answers = [await read(client) for _ in range(33)]
        assert len({each.task_id for each in answers}) == len(server.started) == 1


@under_uvloop
async def test_the_next_request_begins_when_the_news_of_this_one_is_complete() -> None:
    """A worker died: it answers what ran, and only then says which sessions it had."""
    async with stage() as server:
        await create(server.running, "b")
        other = server.runtime.last
        async with talk(server.url) as client:
            await client.send(request() + request(sid="b"))
            operation = await server.comes(1)
            operation.on_result(None, Faulted("worker_lost", "gone"))
            server.handle.listener.lost("worker_lost", "gone")
            other.listener.lost("worker_lost", "gone")
            assert b"worker_lost" in (await read(client)).body
            assert (await read(client)).status == 410
            assert not other.started


async def test_the_next_request_knows_nothing_of_the_context_in_which_this_one_ended() -> None:
    """The local runtime ends a call in a context that says whose trace and secrets its log lines get."""
    current = contextvars.ContextVar("current", default="nobody")
    seen: list[str] = []

    class Noting(list[ScriptedOperation]):
        def append(self, operation: ScriptedOperation) -> None:
            seen.append(current.get())
            super().append(operation)

    async with stage() as server, talk(server.url) as client:
        server.handle.started = Noting()
        await client.send(request(0) + request(1))
        operation = await server.comes(1)
        context = contextvars.copy_context()
        context.run(current.set, "somebody")
        context.run(end, operation)
        end(await server.comes(2))
        assert [(await read(client)).result, (await read(client)).result] == [b"0", b"1"]
    assert seen == ["nobody", "nobody"]


# slow tools, and a slow server


@pytest.mark.parametrize(("stream_after_s", "streamed"), [(0.0, True), (0.02, False), (30.0, False)])
async def test_a_call_becomes_a_stream_when_the_runtime_says_so_or_at_once(
    stream_after_s: float, streamed: bool
) -> None:
    async with stage(stream_after_s=stream_after_s) as server, talk(server.url) as client:
        await client.send(request(1))
        operation = await server.comes(1)
        await asyncio.sleep(0.05)
        end(operation)
        answer = await read(client)
        assert (answer.streamed, answer.result) == (streamed, b"1")
        await client.send(request(2))
        operation = await server.comes(2)
        assert operation.progress is not None
        operation.progress(b'event: chunk\r\ndata: {"a"\r\n\r\n')
        await asyncio.sleep(0.01)
        operation.on_result(ended(":1}"), None)
        answer = await read(client)
        assert answer.streamed and answer.result == b'{"a":1}'


@under_uvloop
async def test_a_stall_of_the_server_itself_makes_no_streams() -> None:
    """What came meanwhile is read first."""
    loop = asyncio.get_running_loop()
    with ExitStack() as sockets:
        pairs = [[sockets.enter_context(each) for each in socket.socketpair()] for _ in range(2)]
        async with stage() as server, talk(server.url) as client:
            await client.send(request(1))
            operation = await server.comes(1)

            def stall() -> None:
                loop.remove_reader(pairs[0][0])
                time.sleep(1.3)
                pairs[1][1].send(b"x")

            def read_outcome() -> None:
                loop.remove_reader(pairs[1][0])
                end(operation)

            loop.add_reader(pairs[0][0], stall)
            loop.add_reader(pairs[1][0], read_outcome)
            pairs[0][1].send(b"x")
            answer = await read(client)
            assert answer.result == b"1" and not answer.streamed


async def test_a_runtime_that_reports_nothing_is_waited_for_no_longer_than_a_second() -> None:
    async with stage() as server, talk(server.url) as client:
        await client.send(request(1))
        operation = await server.comes(1)
        began = time.monotonic()
        assert TASK_ID.search(await client.reader.readuntil(b"\r\n\r\n\r\n"))
        assert 0.9 < time.monotonic() - began < 5
        end(operation)


# what breaks


async def test_an_answer_that_fails_breaks_its_connection_off_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage() as server, talk(server.url) as bad, talk(server.url) as good:
        answer = Cycle.answer

        def fail_once(cycle: Cycle, *given: Any) -> bool:
            monkeypatch.setattr(Cycle, "answer", answer)
            raise RuntimeError("half an answer")

        key = {"Idempotency-Key": "k"}
        await bad.send(request(1, **key))
        operation = await server.comes(1)
        await good.send(request(1, **key))
        await until(lambda: len(cast("Any", server.calls[0])._readers) == 2)
        monkeypatch.setattr(Cycle, "answer", fail_once)
        with capture_logs() as lines:
            end(operation)
        assert await bad.rest() == b""
        assert (await read(good)).result == b"1"
        assert [line["event"] for line in lines] == ["answer_failed"]
        assert server.running.sessions.totals.in_flight == 0


async def test_a_session_that_ends_answers_what_runs_and_refuses_what_waits() -> None:
    async with stage() as server, talk(server.url) as client, talk(server.url) as other:
        await client.send(request(1) + request(2))
        operation = await server.comes(1)
        await other.send(raw_request("/delete", "a", None))
        assert (await read(other)).status == 200
        assert b'"cancelled"' in (await read(client)).body
        assert (await read(client)).status == 410
        end(operation)  # too late
        assert len(server.started) == 1 and server.running.sessions.totals.in_flight == 0


async def test_too_many_calls_are_refused_and_then_not() -> None:
    async with stage(max_calls=2) as server, talk(server.url) as client:
        async with talk(server.url) as one, talk(server.url) as two:
            await one.send(request(1))
            await two.send(request(2))
            await until(lambda: len(server.started) == 2)
            await client.send(request(3))
            assert (await read(client)).status == 429
            for operation in server.started:
                end(operation)
            assert [(await read(one)).result, (await read(two)).result] == [b"1", b"2"]
        await client.send(request(3))
        end(await server.comes(3))
        assert (await read(client)).result == b"3"


async def test_a_client_that_does_not_read_delays_itself_only() -> None:
    large = [json.dumps(str(number) * 3_000_000) for number in range(4)]
    async with stage() as server, talk(server.url) as client, talk(server.url) as other:
        reading = cast("asyncio.ReadTransport", client.writer.transport)
        reading.pause_reading()
        server.handle.answers = [ended(each) for each in large]
        await client.send(b"".join(request(number) for number in range(4)))
        await until(lambda: len(server.started) >= 2)
        await asyncio.sleep(0.05)
        server.handle.answers.append(ended("9"))
        seen = len(server.started)
        await other.send(request(9))
        await until(lambda: len(server.started) > seen)
        assert number_of(server.started[-1]) == 9 and (await read(other)).status == 200
        reading.resume_reading()
        assert [(await read(client)).status for _ in range(4)] == [200] * 4
        assert [number_of(each) for each in server.started if number_of(each) < 9] == [0, 1, 2, 3]
        assert server.running.sessions.totals.in_flight == 0


async def test_a_key_that_is_taken_back_ends_its_request_and_not_the_call() -> None:
    async with stage(api_keys=["key", "other"]) as server, talk(server.url) as client:
        await client.send(request(1, **KEY) + request(2, **KEY))
        operation = await server.comes(1)
        cast("Any", server.running)._keys.replace([SecretStr("other")])
        assert (await read(client)).status == 401
        end(operation)
        assert await client.rest() == b""
        assert len(server.started) == 1 and server.running.sessions.totals.in_flight == 0


@pytest.mark.parametrize("committed", [True, False])
async def test_no_outcome_is_out_before_the_journal_has_it(
    committed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Callable[[bool], None]] = []
    add = Writer.add

    def hold(writer: Writer, row: Any, on_durable: Callable[[bool], None] | None = None) -> None:
        if on_durable is not None and type(row).__name__ == "CallEnded":
            held.append(on_durable)
            on_durable = None
        add(writer, row, on_durable)

    journal = str(tmp_path / "journal.sqlite")
    async with stage(journal=journal, journal_required=True) as server, talk(server.url) as client:
        monkeypatch.setattr(Writer, "add", hold)
        await client.send(request(1) + request(2))
        end(await server.comes(1))
        waiting = asyncio.create_task(read(client))
        await asyncio.sleep(0.1)
        assert not waiting.done() and len(server.started) == 1
        held[0](committed)
        body = (await waiting).body
        assert (b"journal could not" in body, b"data: 1\r" in body) == (not committed, committed)
        end(await server.comes(2))
        held[1](True)
        assert (await read(client)).result == b"2"


@pytest.mark.parametrize("twice", [False, True])
async def test_a_server_that_stops_answers_what_runs(twice: bool) -> None:
    async with stage(shutdown_grace_s=20) as server, talk(server.url) as client:
        await client.send(request(1))
        operation = await server.comes(1)
        sessions = server.running.sessions
        sessions.refuse_new()
        draining = asyncio.create_task(sessions.drain(20))
        await asyncio.sleep(0.05)
        assert not draining.done()
        if twice:
            sessions.hurry()
            await sessions.close_all()
            assert b'"cancelled"' in (await read(client)).body
        else:
            end(operation)
            assert (await read(client)).result == b"1"
        await asyncio.wait_for(draining, WAIT_S)


# what a server keeps


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def alive(*kinds: type) -> dict[str, int]:
    objects = gc.get_objects()
    return {kind.__name__: sum(type(each) is kind for each in objects) for kind in kinds}


async def test_answered_calls_leave_nothing_but_their_stored_results() -> None:
    async with stage(stored_results_per_session=10) as server, talk(server.url) as client:
        ending = server.answer_all()
        with no_garbage_collection():
            before = alive(Cycle, PendingRequest, Call)
            for block in range(25):
                numbers = range(20 * block, 20 * block + 20)
                await client.send(b"".join(request(number) for number in numbers))
                assert [(await read(client)).result for _ in numbers] == [
                    b"%d" % number for number in numbers
                ]
            server.started[:] = []
            ending.cancel()
            after = alive(Cycle, PendingRequest, Call)
        more = {name: after[name] - before[name] for name in after}
        assert more["Cycle"] <= 25 and more["PendingRequest"] <= 1 and more["Call"] <= 12, more
        pending = cast("Any", server.running.app)._episodes._pending
        assert not pending.since


# other ways to the same endpoint


async def test_below_another_server_calls_are_answered_as_well() -> None:
    async with stage() as server:
        ending = server.answer_all()
        transport = httpx.ASGITransport(app=cast("Any", server.running.app))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            body = {"name": "act", "input": {"number": 7}}
            found = await http.post("/call", json=body, headers={"X-Session-ID": "a"})
            refused = await http.post("/call", json=body, headers={"X-Session-ID": "nobody"})
        ending.cancel()
        assert b"data: 7\r\n" in found.content and refused.status_code == 404


@pytest.mark.parametrize("trusted", ["127.0.0.1", ""])
@pytest.mark.parametrize("forwarded", [{}, {"X-Forwarded-For": "192.0.2.7"}])
async def test_the_address_of_a_client_is_the_proxys_word_where_that_is_trusted(
    trusted: str, forwarded: dict[str, str]
) -> None:
    async with (
        stage(trusted_proxies=trusted, api_keys=["key"]) as server,
        talk(server.url) as client,
    ):
        with capture_logs() as lines:
            await client.send(request(1, **forwarded))
            assert (await read(client)).status == 401
        (line,) = [line for line in lines if line["event"] == "key_refused"]
        assert line["client"] == ("192.0.2.7" if trusted and forwarded else "127.0.0.1")


async def test_guesses_of_a_key_are_logged_at_a_bounded_rate() -> None:
    async with stage(api_keys=["key"]) as server, talk(server.url) as client:
        with capture_logs() as lines:
            for _ in range(50):
                await client.send(request(1))
                assert (await read(client)).status == 401
        (line,) = [line for line in lines if line["event"] == "key_refused"]
        assert line["times"] == 1  # the next line, ten seconds later, has the number of the others


CONTENT = b'{"name":"act","input":{"number":5}}'
HEAD = b"POST /call HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: a\r\n"
WITH_LENGTH = HEAD + b"Content-Length: %d\r\n" % len(CONTENT)
CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(CONTENT), CONTENT)
PIECES: dict[str, tuple[bytes, ...]] = {
    "whole": (WITH_LENGTH + b"\r\n" + CONTENT,),
    "apart": (WITH_LENGTH + b"\r\n", CONTENT),
    "within the head": (WITH_LENGTH[:20], WITH_LENGTH[20:] + b"\r\n" + CONTENT),
    "within the body": (WITH_LENGTH + b"\r\n" + CONTENT[:3], CONTENT[3:]),
    "bytes": tuple(bytes([each]) for each in WITH_LENGTH + b"\r\n" + CONTENT),
    "chunked": (CHUNKS + CHUNK + b"0\r\n\r\n",),
    "chunks": (CHUNKS, CHUNK, b"0\r\n", b"\r\n"),
    "trailers": (CHUNKS + CHUNK + b"0\r\nX-Session-ID: nobody\r\n\r\n",),
    "expecting": (WITH_LENGTH + b"Expect: 100-continue\r\n\r\n" + CONTENT,),
    "path": (WITH_LENGTH.replace(b"/call", b"/Rooms/%63all?x=1") + b"\r\n" + CONTENT,),
    "slash": (WITH_LENGTH.replace(b"/call", b"/call/") + b"\r\n" + CONTENT,),
    "closing": (WITH_LENGTH + b"Connection: close\r\n\r\n" + CONTENT,),
    "old": (WITH_LENGTH.replace(b"1.1", b"1.0") + b"\r\n" + CONTENT,),
}


async def test_however_a_call_comes_it_is_the_same_call() -> None:
    async with stage() as server:
        ending = server.answer_all()
        for name, pieces in PIECES.items():
            async with talk(server.url) as client:
                for piece in pieces:
                    await client.send(piece)
                    await asyncio.sleep(0.002)
                answer = await read(client)
                assert answer.result == b"5", name
                closes = name in ("closing", "old")
                assert (b"connection: close" in answer.head) == closes, name
                if closes:
                    assert await client.rest() == b""
        async with talk(server.url) as client:
            await client.send(WITH_LENGTH + b"Expect: 100-continue\r\n\r\n")
            assert await client.status() == 100
            await client.send(CONTENT)
            assert (await read(client)).result == b"5"
        assert len(server.started) == len(PIECES) + 1
        ending.cancel()


BAD = [
    (b"{", 422),
    (b"[]", 422),
    (b'{"name":"\xff","input":{}}', 422),
    (b'{"name":"\\ud800","input":{}}', 422),
    (b'{"name":"act","input":"%b"}' % (b"y" * 3000), 413),
    (b"[" * 900, 422),
]


async def test_what_is_no_call_is_refused_and_the_connection_goes_on() -> None:
    async with stage(max_body_bytes=2000) as server, talk(server.url) as client:
        for body, status in BAD:
            await client.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert (await read(client)).status == status, body[:30]
        for head, status in (
            (HEAD.replace(b": a", b": nobody"), 404),
            (HEAD.replace(b": a", b": "), 400),
            (HEAD.replace(b": localhost", b": evil.example"), 403),
            (HEAD + b"Host: localhost\r\n", 400),
            (HEAD + b"Origin: https://evil.example\r\n", 403),
            (HEAD.replace(b"POST", b"GET"), 405),
            (HEAD.replace(b"POST", b"PUT"), 405),
        ):
            await client.send(head + b"Content-Length: %d\r\n\r\n" % len(CONTENT) + CONTENT)
            assert (await read(client)).status == status, head
        assert not server.started
        await client.send(request(1))
        end(await server.comes(1))
        assert (await read(client)).result == b"1"
