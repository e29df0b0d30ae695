"""Creates, prompts and deletes that are answered without a task, by a runtime that the test scripts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from orsay.errors import Faulted, Overloaded, Refused
from orsay.runtimes.base import ClosesByCallback, Listener, OnResult, OpensByCallback, OpenSession, Runtime
from orsay.serving.assembly import Running
from orsay.sessions.session import Session

from ..support.gateways import gateway_of
from ..support.sessions import ScriptedHandle, ScriptedRuntime, ended
from ..support.sockets import raw_request
from ..support.waiting import until
from .hostile import Talk, talk
from .test_attack_at_once import Answer, alive, no_garbage_collection, read

BODY = {"env_name": "rooms", "split": "train", "index": 0}


class Handle(ScriptedHandle, ClosesByCallback):
    """It closes when the test says so, and at once when the server stops."""

    def __init__(self, runtime: CallbackRuntime, request: OpenSession, listener: Listener) -> None:
        super().__init__(request, listener, [])
        self.runtime = runtime
        self.closings: list[OnResult] = []

    def start_close(self, on_result: OnResult) -> None:
        self.closed += 1
        if self.runtime.stops:
            on_result(b"", None)
        else:
            self.closings.append(on_result)


@dataclass
class Opening:
    listener: Listener
    on_result: OnResult
    handle: Handle

    def succeed(self) -> None:
        self.listener.setup_ended(None)
        self.on_result(None, None)

    def fail(self, error: Faulted | Refused) -> None:
        self.on_result(None, error)


class CallbackRuntime(OpensByCallback, ScriptedRuntime):
    """It opens sessions when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.openings: list[Opening] = []
        self.stops = False

    def start_open(self, request: OpenSession, listener: Listener, on_result: OnResult) -> Handle:
        handle = Handle(self, request, listener)
        self.openings.append(Opening(listener, on_result, handle))
        return handle


@dataclass
class Stage:
    running: Running
    runtime: CallbackRuntime

    def answering(self, path: str) -> int:
        """Number of connections with a request for that path that has no answer yet."""
        cycles = [each.running for each in cast("Any", self.running)._http.server_state.connections]
        return sum(cycle is not None and cycle.scope["path"] == path for cycle in cycles)

    async def opening(self, count: int = 1) -> Opening:
        await until(lambda: len(self.runtime.openings) >= count)
        return self.runtime.openings[count - 1]

    async def ready(self, client: Talk, sid: str = "a") -> Handle:
        """The handle of a new session that is ready."""
        number = len(self.runtime.openings) + 1
        await client.send(create(sid))
        opening = await self.opening(number)
        opening.succeed()
        assert (await read(client)).status == 200
        return opening.handle


@asynccontextmanager
async def stage(**settings: object) -> AsyncIterator[Stage]:
    runtime = CallbackRuntime()
    async with gateway_of(runtime, **{"journal": "off", **settings}) as running:
        try:
            yield Stage(running, runtime)
        finally:
            runtime.stops = True


def create(sid: str = "a", **headers: str) -> bytes:
    return raw_request("/create", sid, BODY, **headers)


def delete(sid: str = "a") -> bytes:
    return raw_request("/delete", sid, {})


def prompt(sid: str = "a") -> bytes:
    return f"GET /prompt HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: {sid}\r\n\r\n".encode()


def call(sid: str = "a") -> bytes:
    return raw_request("/call", sid, {"name": "act", "input": {}})


def detail(answer: Answer) -> str:
    return str(json.loads(answer.body)["detail"])


async def test_an_episode_is_played_over_one_connection_whose_requests_came_together() -> None:
    async with stage() as server, talk(server.running.url) as client:
        await client.send(create() + prompt() + call() + delete() + prompt())
        opening = await server.opening()
        assert not opening.handle.started
        opening.succeed()
        created = await read(client)
        assert (created.status, created.body) == (200, b'{"sid":"a"}')
        assert b"x-orsay-trace: " in created.head and b"x-orsay-state: ready" in created.head
        await until(lambda: len(opening.handle.started) == 1)
        opening.handle.started[0].on_result(b'[{"text":"go"}]', None)
        assert (await read(client)).body == b'[{"text":"go"}]'
        await until(lambda: len(opening.handle.started) == 2)
        opening.handle.started[1].on_result(ended("1"), None)
        assert (await read(client)).result == b"1"
        await until(lambda: opening.handle.closings)
        opening.handle.closings[0](b"", None)
        assert (await read(client)).body == b'{"sid":"a"}'
        assert (await read(client)).status == 410


async def test_a_create_that_is_repeated_while_it_runs_opens_one_session_for_all() -> None:
    async with stage() as server, talk(server.running.url) as one, talk(server.running.url) as two:
        await one.send(create())
        opening = await server.opening()
        await two.send(create())
        await until(lambda: server.answering("/create") == 2)
        assert len(server.runtime.openings) == 1
        opening.succeed()
        assert [(await read(each)).status for each in (one, two)] == [200, 200]


@pytest.mark.parametrize(
    ("error", "status", "left"),
    [
        (Faulted("setup_error", "no floor"), 500, 404),
        (Faulted("worker_lost", "it died"), 503, 404),
        (Overloaded("full"), 429, 404),
    ],
)
async def test_a_create_that_fails_leaves_no_session(
    error: Faulted | Refused, status: int, left: int
) -> None:
    async with stage() as server, talk(server.running.url) as client:
        await client.send(create())
        (await server.opening()).fail(error)
        assert (await read(client)).status == status
        await client.send(prompt())
        assert (await read(client)).status == left
        assert not server.running.sessions.live
        assert await server.ready(client)


async def test_a_create_whose_client_left_goes_on_and_is_joined_by_the_next() -> None:
    async with stage() as server:
        async with talk(server.running.url) as gone:
            await gone.send(create())
            opening = await server.opening()
        opening.succeed()
        async with talk(server.running.url) as client:
            await client.send(create())
            assert (await read(client)).status == 200
        assert len(server.runtime.openings) == 1


async def test_a_session_deleted_while_it_is_constructed_ends_for_all_who_wait() -> None:
    async with stage() as server, talk(server.running.url) as one, talk(server.running.url) as two:
        await one.send(create())
        opening = await server.opening()
        await two.send(delete())
        created = await read(one)
        assert (created.status, detail(created)) == (410, "Session deleted while it was constructed")
        await until(lambda: opening.handle.closings)
        opening.succeed()  # too late
        opening.handle.closings[0](b"", None)
        assert (await read(two)).status == 200
        await two.send(prompt())
        assert (await read(two)).status == 410


async def test_prompts_of_clients_that_left_are_dropped_and_faults_keep_their_class() -> None:
    async with stage() as server, talk(server.running.url) as client:
        handle = await server.ready(client)
        async with talk(server.running.url) as gone:
            await gone.send(prompt())
            await until(lambda: len(handle.started) == 1)
        await until(lambda: not server.answering("/prompt"))
        handle.started[0].on_result(b"[]", None)
        await client.send(prompt())
        await until(lambda: len(handle.started) == 2)
        handle.started[1].on_result(None, Faulted("prompt_error", "no words"))
        failed = await read(client)
        assert failed.status == 500 and b"x-orsay-fault: prompt_error" in failed.head
        [session] = server.running.sessions.live.values()
        assert not session.busy


async def test_a_delete_ends_the_call_that_runs_and_all_deletes_wait_for_one_teardown() -> None:
    async with stage() as server, talk(server.running.url) as caller, talk(server.running.url) as one:
        handle = await server.ready(one)
        await caller.send(call())
        await until(lambda: len(handle.started) == 1)
        async with talk(server.running.url) as two, talk(server.running.url) as gone:
            for each in (one, two, gone):
                await each.send(delete())
            await until(lambda: server.answering("/delete") == 3)
            gone.writer.transport.abort()
            handle.started[0].on_result(None, Faulted("cancelled", "the session was closed"))
            assert b'"cancelled"' in (await read(caller)).body
            handle.closings[0](None, Faulted("setup_error", "teardown failed"))
            answers = [json.loads((await read(each)).body) for each in (one, two)]
        assert [answer["fault"]["class"] for answer in answers] == ["setup_error"] * 2
        assert handle.closed == 1 and not server.running.sessions.live


async def test_a_request_with_a_foreign_key_or_a_large_body_is_refused_as_others_are() -> None:
    async with stage(max_body_bytes=1024) as server, talk(server.running.url) as client:
        await client.send(raw_request("/create", "a", {**BODY, "toolset_name": "x" * 2000}))
        assert (await read(client)).status == 413
        await client.send(raw_request("/create", "a", {"split": 7}))
        assert (await read(client)).status == 422
        await client.send(raw_request("/create", "", BODY))
        assert (await read(client)).status == 400
        await client.send(prompt("nobody"))
        assert (await read(client)).status == 404
        await client.send(delete("nobody"))
        assert (await read(client)).body == b'{"sid":"nobody"}'
        assert not server.runtime.openings


async def test_answers_wait_until_the_journal_has_the_begin_and_the_end(tmp_path: Path) -> None:
    async with stage(journal=str(tmp_path / "journal.db")) as server, talk(server.running.url) as client:
        await server.ready(client)  # the first rows wait for the tables, and the next for the log
        writer = server.running.journal
        assert writer is not None
        held: list[Callable[[], None]] = []
        add = writer.add

        def hold(row: Any, on_durable: Any = None) -> None:
            held.append(partial(add, row, on_durable))

        writer.add = hold  # type: ignore[method-assign]  # a disk that is slow
        await client.send(create("b"))
        opening = await server.opening(2)
        opening.succeed()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.readexactly(1), 0.05)
        held.pop(0)()
        assert (await read(client)).status == 200
        await client.send(delete("b"))
        await until(lambda: opening.handle.closings)
        opening.handle.closings[0](b"", None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.readexactly(1), 0.05)
        held.pop(0)()
        assert (await read(client)).status == 200
        writer.add = add  # type: ignore[method-assign]


async def test_without_the_journal_that_it_needs_a_session_is_closed_again(tmp_path: Path) -> None:
    settings = {"journal": str(tmp_path / "journal.db"), "journal_required": True}
    async with stage(**settings) as server, talk(server.running.url) as client:
        writer = server.running.journal
        assert writer is not None
        add = writer.add

        def refuse(row: Any, on_durable: Any = None) -> None:
            if on_durable is not None:
                on_durable(False)

        writer.add = refuse  # type: ignore[method-assign]  # a journal in trouble
        await client.send(create())
        opening = await server.opening()
        opening.succeed()
        await until(lambda: opening.handle.closings)
        opening.handle.closings[0](b"", None)
        assert (await read(client)).status == 429
        assert not server.running.sessions.live
        writer.add = add  # type: ignore[method-assign]


async def test_a_session_lost_before_the_journal_refuses_it_is_refused_and_harms_no_other(
    tmp_path: Path,
) -> None:
    settings = {"journal": str(tmp_path / "journal.db"), "journal_required": True}
    async with stage(**settings) as server, talk(server.running.url) as client:
        writer = server.running.journal
        assert writer is not None
        add, held = writer.add, list[Any]()
        writer.add = lambda row, on_durable=None: held.append(on_durable)  # type: ignore[method-assign]
        await client.send(create())
        opening = await server.opening()
        opening.succeed()
        opening.listener.lost("worker_lost", "it died")
        held[0](False)  # by the writer, with rows of other sessions behind it
        assert (await read(client)).status == 429
        assert not opening.handle.closings and not server.running.sessions.live
        writer.add = add  # type: ignore[method-assign]


async def test_sessions_that_ended_leave_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    async with stage(journal=str(tmp_path / "journal.db")) as server, talk(server.running.url) as client:
        with no_garbage_collection():
            for number in range(20):
                handle = await server.ready(client, f"a{number}")
                await client.send(delete(f"a{number}"))
                await until(partial(bool, handle.closings))
                handle.closings[0](b"", None)
                assert (await read(client)).status == 200
            server.runtime.openings.clear()
            del handle
            assert alive(Session)["Session"] <= 1  # the last request's


def test_the_runtime_of_these_tests_is_one() -> None:
    runtime: Runtime = CallbackRuntime()
    assert isinstance(runtime, OpensByCallback)
