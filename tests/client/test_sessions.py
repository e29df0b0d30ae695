"""Opening and ending sessions, and everything that is not a call."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping

import pytest
from orsay_client import (
    AsyncClient,
    BadRequest,
    ClientClosed,
    ConnectionLost,
    Overloaded,
    ProtocolError,
    Retry,
    ServerError,
    ServerStopping,
    SessionLost,
    SetupError,
    ToolRefused,
    Unauthorized,
    Unsupported,
    WorkerLost,
)
from orsay_protocol.sse import encode_event

from ..support.scripted_server import Handler, Reply, Request, ScriptedServer, good, ors

QUICK = Retry(tries=3, first_delay_s=0.01, max_delay_s=0.02)


def answer(status: int, body: object, headers: Mapping[str, str] | None = None) -> Handler:
    async def handle(request: Request, reply: Reply) -> None:
        await reply.json(body, status, headers)

    return handle


def stream(*events: tuple[str, str]) -> Handler:
    async def handle(request: Request, reply: Reply) -> None:
        body = b": hello\r\n\r\n" + b"".join(encode_event(*event) for event in events)
        await reply.raw(body, headers={"Content-Type": "text/event-stream"})

    return handle


@pytest.mark.parametrize(
    ("events", "sid"),
    [
        ([("task_id", "s1"), ("end", "")], "s1"),
        ([("task_id", "s1"), ("end", '{"sid":"s2"}')], "s2"),
        ([("task_id", "s1"), ("end", "whatever")], "s1"),
    ],
)
async def test_the_session_id_comes_in_a_stream(events: list[tuple[str, str]], sid: str) -> None:
    async with ScriptedServer(ors(others={"/create_session": stream(*events)})) as server:
        async with AsyncClient(server.url) as client, client.environment().session(task_spec={}) as session:
            assert session.sid == sid
        (request,) = server.sent("/create_session")
        assert request.headers["accept"] == "text/event-stream" and request.json() == {}
        assert {r.headers["x-session-id"] for r in server.requests[1:]} == {sid}


@pytest.mark.parametrize(
    "handler", [answer(200, {}), answer(200, []), stream(("end", "")), answer(200, {"sid": 1})]
)
async def test_an_answer_without_session_id(handler: Handler) -> None:
    async with (
        ScriptedServer(ors(others={"/create_session": handler})) as server,
        AsyncClient(server.url) as client,
    ):
        with pytest.raises(ProtocolError, match="is this an ORS server"):
            await client.environment().session(task_spec={}).open()


async def test_what_create_is_sent() -> None:
    async with ScriptedServer(ors()) as server, AsyncClient(server.url, api_key="key-1234") as client:
        session = client.environment("My Env").session(
            split="train",
            index=-1,
            toolset="codex",
            secrets={"token": "hunter22"},
            run_labels={"step": 7, "name": "ü"},
            traceparent="00-aa-bb-01",
        )
        async with session:
            pass
        (request,) = server.sent("/create")
        assert request.json() == {
            "split": "train",
            "index": -1,
            "toolset_name": "codex",
            "env_name": "My Env",
        }
        secrets = json.loads(base64.b64decode(request.headers["x-secrets"]))
        assert secrets["token"]["value"] == "hunter22"
        for request in server.requests:
            assert request.headers["x-api-key"] == "key-1234"
            assert request.headers["x-orsay-run"] == '{"step":7,"name":"\\u00fc"}'
            assert request.headers["traceparent"] == "00-aa-bb-01"
            assert ("x-secrets" in request.headers) == (request.path == "/create")


async def test_paths_carry_the_name_of_the_environment_when_one_is_given() -> None:
    async with (
        ScriptedServer(ors(others={"/My%20Env/call": ors()})) as server,
        AsyncClient(server.url) as client,
    ):
        async with client.environment("My Env").session(task_spec={}) as session:
            with pytest.raises(Exception, match="Not Found"):
                await session.call("x")
        assert server.sent("/My%20Env/call")


async def test_the_end_of_the_block_ends_the_session_on_the_server() -> None:
    async with ScriptedServer(ors()) as server, AsyncClient(server.url) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.environment().session(task_spec={}):
                raise ZeroDivisionError
        assert [r.path for r in server.requests] == [
            "/create_session",
            "/create",
            "/delete",
            "/delete_session",
        ]


async def test_our_own_server_needs_no_second_goodbye() -> None:
    async with ScriptedServer(ors(orsay=True)) as server, AsyncClient(server.url) as client:
        async with client.environment().session(task_spec={}):
            pass
        assert [r.path for r in server.requests] == ["/create_session", "/create", "/delete"]


async def test_delete_is_retried_and_its_failure_is_not_the_callers() -> None:
    async with ScriptedServer(ors(others={"/delete": answer(503, {})})) as server:
        async with AsyncClient(server.url, retry=QUICK) as client, client.environment().session(task_spec={}):
            pass
        assert len(server.sent("/delete")) == 3


async def test_a_delete_that_hangs_is_given_up() -> None:
    async def hang(request: Request, reply: Reply) -> None:
        await asyncio.sleep(60)

    async with (
        ScriptedServer(ors(others={"/delete": hang})) as server,
        asyncio.timeout(20),
        AsyncClient(server.url, close_timeout_s=0.2) as client,
        client.environment().session(task_spec={}),
    ):
        pass


async def test_a_cancelled_caller_still_ends_its_session() -> None:
    deleted = asyncio.Event()

    async def slow_delete(request: Request, reply: Reply) -> None:
        deleted.set()
        await asyncio.sleep(0.1)
        await reply.json({"sid": "x"})

    entered = asyncio.Event()

    async def episode() -> None:
        async with client.environment().session(task_spec={}):
            entered.set()
            await asyncio.sleep(60)

    async with ScriptedServer(ors(others={"/delete": slow_delete}, orsay=True)) as server:
        async with AsyncClient(server.url) as client:
            task = asyncio.create_task(episode())
            await asyncio.wait_for(entered.wait(), 10)
            task.cancel()
            await asyncio.wait_for(deleted.wait(), 10)
            task.cancel()  # impatient: while /delete is under way
            with pytest.raises(asyncio.CancelledError):
                await task
        assert len(server.sent("/delete")) == 1


async def test_a_caller_cancelled_while_opening_leaves_nothing_behind() -> None:
    creating = asyncio.Event()

    async def slow_create(request: Request, reply: Reply) -> None:
        creating.set()
        await asyncio.sleep(60)

    async with ScriptedServer(ors(others={"/create": slow_create})) as server:
        async with AsyncClient(server.url) as client:
            task = asyncio.create_task(client.environment().session(task_spec={}).open())
            await asyncio.wait_for(creating.wait(), 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert server.sent("/delete")[0].headers["x-session-id"] == "the-sid"


async def test_leaving_the_client_ends_sessions_that_are_still_open() -> None:
    async with ScriptedServer(ors()) as server:
        async with AsyncClient(server.url) as client:
            session = client.environment().session(task_spec={})
            await session.open()
        assert len(server.sent("/delete")) == 1
        with pytest.raises(ClientClosed):
            await session.call("x")
        with pytest.raises(ClientClosed):
            await client.environments()


async def test_a_create_whose_answer_was_lost_meets_its_own_session() -> None:
    creates = 0

    async def create(request: Request, reply: Reply) -> None:
        nonlocal creates
        creates += 1
        if creates == 1:
            return reply.cut()
        return await reply.json({"detail": "Session already exists"}, 400, {"X-Orsay": "1"})

    async with ScriptedServer(ors(others={"/create": create})) as server:
        async with (
            AsyncClient(server.url, retry=QUICK) as client,
            client.environment().session(task_spec={}) as session,
        ):
            await session.call("x")
        first, second = server.sent("/create")
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


async def test_a_session_that_exists_at_the_first_try_is_not_ours() -> None:
    handler = ors(others={"/create": answer(400, {"detail": "Session already exists"})})
    async with ScriptedServer(handler) as server, AsyncClient(server.url, retry=QUICK) as client:
        with pytest.raises(BadRequest, match="already exists"):
            await client.environment().session(task_spec={}).open()
        assert not server.sent("/delete")


async def test_a_create_that_may_have_worked_is_undone() -> None:
    async def cut(request: Request, reply: Reply) -> None:
        reply.cut()

    async with ScriptedServer(ors(others={"/create": cut})) as server:
        async with AsyncClient(server.url, retry=QUICK) as client:
            with pytest.raises(ConnectionLost) as lost:
                await client.environment().session(task_spec={}).open()
            assert lost.value.may_have_run
        assert len(server.sent("/create")) == 3
        assert len(server.sent("/delete")) == 1


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (400, {}, BadRequest),
        (404, {}, BadRequest),
        (422, {}, BadRequest),
        (401, {}, Unauthorized),
        (403, {}, Unauthorized),
        (429, {"Retry-After": "0"}, Overloaded),
        (503, {}, Overloaded),
        (503, {"X-Orsay-Fault": "shutdown"}, ServerStopping),
        (500, {}, ServerError),
        (500, {"X-Orsay-Fault": "setup_error"}, SetupError),
        (500, {"X-Orsay-Fault": "internal"}, ServerError),
        (418, {}, BadRequest),
    ],
)
async def test_what_a_refused_create_means(
    status: int, headers: dict[str, str], expected: type[Exception]
) -> None:
    handler = ors(others={"/create": answer(status, {"detail": "because"}, headers)})
    async with ScriptedServer(handler) as server, AsyncClient(server.url, retry=QUICK) as client:
        with pytest.raises(expected, match="POST /create: because") as raised:
            await client.environment().session(task_spec={}).open()
        assert type(raised.value) is expected
        assert len(server.sent("/create")) == (3 if status in (429, 503) else 1)


async def test_a_410_names_the_class_of_the_loss() -> None:
    gone = answer(410, {"detail": "worker died"}, {"X-Orsay-Fault": "worker_lost"})
    async with ScriptedServer(ors(others={"/prompt": gone})) as server, AsyncClient(server.url) as client:
        async with client.environment().session(task_spec={}) as session:
            for _ in range(2):
                with pytest.raises(WorkerLost, match="worker died"):
                    await session.prompt()
        assert len(server.sent("/prompt")) == 1
        assert not server.sent("/delete")


async def test_no_error_repeats_a_key_or_a_secret() -> None:
    async def blab(request: Request, reply: Reply) -> None:
        text = f"{request.headers['x-api-key']} {request.headers.get('x-secrets')} hunter22 key-1234-long"
        entry = {"loc": ["body", "secrets"], "msg": "no hunter22", "input": "hunter22"}
        detail = [entry, {"loc": ["body"], "msg": text}] if request.path == "/create" else text
        await reply.json({"detail": detail}, 422)

    async with (
        ScriptedServer(ors(others={"/create": blab, "/prompt": blab})) as server,
        AsyncClient(server.url, api_key="key-1234") as client,
    ):
        session = client.environment().session(task_spec={}, secrets={"token": "hunter22"})
        with pytest.raises(BadRequest) as raised:
            await session.open()
        assert str(raised.value).startswith("POST /create: secrets: no ***; *** ")
        seen = repr(client) + repr(session) + str(raised.value) + repr(vars(raised.value))
        assert "hunter22" not in seen and "key-1234" not in seen


@pytest.mark.parametrize(
    "source",
    [{}, {"split": "train"}, {"index": 0}, {"split": "train", "index": 0, "task_spec": {}}],
)
async def test_exactly_one_task_source(source: dict[str, object]) -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        with pytest.raises(ValueError, match="split"):
            client.environment().session(**source)  # type: ignore[arg-type]  # kinds are mixed


async def test_a_session_is_used_inside_its_block_only() -> None:
    async with ScriptedServer(ors()) as server, AsyncClient(server.url) as client:
        session = client.environment().session(task_spec={})
        with pytest.raises(ClientClosed, match="async with"):
            await session.call("x")
        async with session:
            await session.call("x")
        with pytest.raises(ClientClosed):
            await session.prompt()
        with pytest.raises(ClientClosed, match="opened once"):
            await session.open()


async def test_rewards_are_kept_in_order_and_an_absent_one_is_none() -> None:
    rewards = iter([0.0, None, 0.5])

    async def call(request: Request, reply: Reply) -> None:
        await reply.result(good("x", next(rewards)))

    async with (
        ScriptedServer(ors(call=call)) as server,
        AsyncClient(server.url) as client,
        client.environment().session(task_spec={}) as session,
    ):
        assert session.reward is None
        for _ in range(3):
            await session.call("x")
        assert session.rewards == (0.0, 0.5) and session.reward == 0.5


async def test_run_labels_that_no_header_can_hold_are_refused_at_once() -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        with pytest.raises(ValueError, match="printable ASCII"):
            client.environment().session(task_spec={}, run_labels="a\r\nX-Api-Key: b")


async def test_a_traceparent_that_no_header_can_hold_is_refused_at_once() -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        with pytest.raises(ValueError, match="printable ASCII"):
            client.environment().session(task_spec={}, traceparent="00-\n")


async def test_a_refusal_that_quotes_a_secret_is_cleaned() -> None:
    async def refuse(request: Request, reply: Reply) -> None:
        await reply.result({"ok": False, "error": "input hunter22 is bad", "reason": "input_validation"})

    async with (
        ScriptedServer(ors(call=refuse)) as server,
        AsyncClient(server.url) as client,
        client.environment().session(task_spec={}, secrets={"token": "hunter22"}) as session,
    ):
        with pytest.raises(ToolRefused) as refused:
            await session.call("x")
        assert refused.value.message == "input *** is bad"


@pytest.mark.parametrize("there", [True, False])
async def test_a_404_of_group_scoring_has_two_meanings(there: bool) -> None:
    others = {"/ping": answer(200 if there else 404, {"detail": "gone"})}
    async with (
        ScriptedServer(ors(others=others)) as server,
        AsyncClient(server.url) as client,
        client.environment().session(task_spec={}) as session,
    ):
        with pytest.raises(Unsupported if there else SessionLost):
            await session.score_group([])
        if there:
            await session.call("x")
        else:
            with pytest.raises(SessionLost):
                await session.call("x")


async def test_group_scoring_changes_nothing_and_may_be_asked_twice() -> None:
    tries = 0

    async def score(request: Request, reply: Reply) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            return reply.cut()
        return await reply.result({"scores": [{"reward": 0.5, "metadata": None}]})

    async with (
        ScriptedServer(ors(others={"/score_group": score})) as server,
        AsyncClient(server.url, retry=QUICK) as client,
        client.environment().session(task_spec={}) as session,
    ):
        assert [score.reward for score in await session.score_group([[]])] == [0.5]


async def test_older_servers_have_neither_messages_nor_tools_of_a_task() -> None:
    tools = {"tools": [{"name": "t", "description": "", "input_schema": None}]}
    async with (
        ScriptedServer(ors(others={"/tools": answer(200, tools)})) as server,
        AsyncClient(server.url) as client,
        client.environment().session(task_spec={}) as session,
    ):
        assert [tool.name for tool in await session.tools()] == ["t"]
        assert await session.messages("openai") == [{"role": "user", "content": "go"}]
        assert not await session.supports_score_group()


async def test_the_oldest_servers_have_whole_lists_of_tasks_only() -> None:
    tasks = {"tasks": [{"id": number} for number in range(5)]}
    async with (
        ScriptedServer(ors(others={"/tasks": answer(200, tasks)})) as server,
        AsyncClient(server.url) as client,
    ):
        found = client.environment().tasks("train")
        assert await found.count() == 5
        assert (await found.get(-1)).spec == {"id": 4}
        assert [task.index for task in await found.range(1, 3)] == [1, 2]
        assert [task.spec["id"] async for task in found] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["timeout_s", "silence_s", "keepalive_s", "close_timeout_s"])
def test_times_are_greater_than_nothing(name: str) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        AsyncClient("http://x", **{name: 0})  # type: ignore[arg-type]  # names are mixed
