"""One session never harms another: I1 to I6 on real servers."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import httpx
import pytest

from ..support.author_log import Log
from ..support.server_process import ENVIRONMENTS, ServerProcess, children, server
from ..support.session_api import Api, api_for, timed
from ..support.sockets import connect, raw_request, send_and_vanish
from ..support.waiting import until

pytestmark = pytest.mark.process

EXCEPTIONS = (
    "SystemExit",
    "KeyboardInterrupt",
    "CancelledError",
    "StopIteration",
    "MemoryError",
    "Mute",
    "Surrogate",
)
DEATHS = ("os._exit", "segfault", "kill")


@pytest.mark.conformance("I1")
async def test_two_hundred_blocking_calls_run_at_the_same_time(api: Api, log: Log) -> None:
    sessions = [api.other() for _ in range(200)]
    await asyncio.gather(*(each.create(log=str(log.path)) for each in sessions))
    calls = [asyncio.ensure_future(each.call("first", gate=log.gate("all"))) for each in sessions]
    await log.has("first+", 200)  # none returns before the gate opens
    log.open("all")
    assert {(await call).text for call in calls} == {"first"}
    await asyncio.gather(*(each.delete() for each in sessions))


@pytest.mark.conformance("I1")
@pytest.mark.parametrize("hook", ["constructor", "setup", "prompt"])
async def test_blocking_hooks_of_many_sessions_run_at_the_same_time(api: Api, log: Log, hook: str) -> None:
    sessions = [api.other() for _ in range(60)]
    gate = log.gate("all")

    async def play(each: Api) -> int:
        await each.create(**{hook: f"wait:{gate}"})
        return (await each.get("/prompt")).status_code

    playing = [asyncio.ensure_future(play(each)) for each in sessions]
    late = await api.create()
    assert (await late.call("say", text="not behind them")).text == "not behind them"
    log.open("all")
    assert {await each for each in playing} == {200}
    await asyncio.gather(*(each.delete() for each in [*sessions, late]))


@pytest.mark.conformance("I1", "I6")
async def test_a_server_without_free_threads_says_so() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", workers=1, threads_per_worker=4) as small, _log() as log:
        async with api_for(small.url) as api:
            sessions = [await api.other().create(log=str(log.path)) for _ in range(5)]
            calls = [asyncio.ensure_future(each.call("first", gate=log.gate("all"))) for each in sessions[:4]]
            await log.has("first+", 4)
            refused = await sessions[4].call("say", text="x")
            assert refused.status == 429 and "maximum capacity" in refused.detail
            assert refused.response.headers["retry-after"] == "2"
            assert refused.response.headers["x-orsay-fault"] == "overloaded"
            log.open("all")
            assert {(await call).text for call in calls} == {"first"}
            assert (await sessions[4].call("say", text="x")).text == "x"


def _log() -> _Temporary:
    return _Temporary()


class _Temporary:
    """A Log with a folder of its own."""

    def __enter__(self) -> Log:
        import tempfile
        from pathlib import Path

        self._folder = tempfile.TemporaryDirectory()
        return Log(Path(self._folder.name))

    def __exit__(self, *exc: object) -> None:
        self._folder.cleanup()


@pytest.mark.conformance("I2")
@pytest.mark.parametrize(
    ("tool", "how"), [("do", "sleep"), ("do", "spin"), ("do_async", "block"), ("do", "hold_gil")]
)
async def test_a_blocking_tool_delays_neither_health_nor_pings_nor_other_workers(
    api: Api, tool: str, how: str
) -> None:
    blocking, other = await api.create(), await api.other().create()
    others = [other]
    for seconds in (3, 30):  # the second where the machine is too busy for the first
        running = asyncio.ensure_future(blocking.call(tool, how=f"{how}:{seconds}"))
        await asyncio.sleep(0.2)
        slowest = 0.0
        for _ in range(20):
            slowest = max(slowest, await timed(api.http.get("/health")), await timed(blocking.ping()))
            slowest = max(slowest, await timed(other.call("say", text="x")))
        in_time = slowest < 2.0 and not running.done()
        assert (await running).text == "done"
        if in_time:
            break
    assert in_time, "a blocked server would answer after seconds"
    await asyncio.gather(*(each.delete() for each in [blocking, *others]))


@pytest.mark.conformance("I3")
@pytest.mark.parametrize("how", EXCEPTIONS)
async def test_exceptions_in_any_hook_end_that_request_only(api: Api, log: Log, how: str) -> None:
    other = await api.other().create(log=str(log.path))
    playing = asyncio.ensure_future(other.call("add_later", gate=log.gate("open")))
    await log.has("add")

    refused = await api.post("/create", {"env_name": "scripted", "task_spec": {"constructor": how}})
    assert refused.status_code == 500 and refused.headers["x-orsay-fault"] == "setup_error"

    broken = await api.other().create("asyncscripted", setup=how)
    prompt = await broken.get("/prompt")
    assert prompt.status_code == 500 and prompt.headers["x-orsay-fault"] == "setup_error"
    assert (await broken.call("say", text="x")).status == 500
    assert await broken.ping() == 200
    await broken.delete()

    session = await api.other().create(prompt=how, score=how, teardown=how)
    assert (await session.get("/prompt")).headers["x-orsay-fault"] == "prompt_error"
    for tool in ("do", "do_async", "check"):
        assert (await session.call(tool, how=how)).fault == "tool_error"
    score = await session.post("/score_group", {"candidates": []})
    assert b"score_error" in score.content
    await session.delete()
    assert await session.ping() == 410

    log.open("open")
    assert (await playing).text == "1"
    await other.delete()


@pytest.mark.conformance("I3", "I4")
@pytest.mark.parametrize("how", DEATHS)
async def test_a_dead_worker_ends_its_streams_and_is_replaced(
    served: ServerProcess, api: Api, log: Log, how: str
) -> None:
    sessions = await on_both_workers(api, log)
    calls = [asyncio.ensure_future(each.call("add_later", gate=log.gate("open"))) for each in sessions]
    await log.has("add", len(sessions))
    doomed = await api.create()
    reply = await doomed.call("do", how=how)
    assert reply.fault == "worker_lost" and "worker process" in reply.error
    gone = await doomed.post("/ping")
    assert gone.status_code == 410 and gone.headers["x-orsay-fault"] == "worker_lost"
    assert "worker process" in gone.json()["detail"]
    new = await api.other().create()
    assert (await new.call("say", text="new")).text == "new"
    log.open("open")
    replies = [await call for call in calls]
    lost = [reply for reply in replies if reply.events[-1].event == "error"]
    assert {reply.fault for reply in lost} == {"worker_lost"} and 0 < len(lost) < len(sessions)
    for each, reply in zip(sessions, replies, strict=True):
        assert await each.ping() == (410 if reply in lost else 200)
        await each.delete()
    await new.delete()
    await until(lambda: len(children(served.pid)) == 2)


async def on_both_workers(api: Api, log: Log) -> list[Api]:
    """Sessions, some in each worker; waits for the second worker if it still starts."""
    sessions: list[Api] = []
    async with asyncio.timeout(20):
        while len({(await each.call("where")).text for each in sessions}) < 2:
            sessions.append(await api.other().create(log=str(log.path)))
            await asyncio.sleep(0.02)
    return sessions


@pytest.mark.conformance("I3")
@pytest.mark.parametrize("hook", ["constructor", "setup", "prompt", "teardown"])
async def test_a_worker_that_dies_in_a_hook_leaves_the_server_whole(
    served: ServerProcess, api: Api, hook: str
) -> None:
    session = api.other()
    answer = await session.post("/create", {"env_name": "scripted", "task_spec": {hook: "os._exit"}})
    if hook == "constructor":
        assert answer.headers.get("x-orsay-fault") == "worker_lost"
    else:
        assert answer.status_code == 200
    if hook == "prompt":
        assert (await session.get("/prompt")).headers["x-orsay-fault"] == "worker_lost"
    await until_gone(session, hook)
    await session.delete()
    new = await api.other().create()
    assert (await new.call("say", text="new")).text == "new"
    await new.delete()
    await until(lambda: len(children(served.pid)) == 2)
    assert served.code is None


async def until_gone(session: Api, hook: str) -> None:
    if hook in ("setup", "prompt"):
        async with asyncio.timeout(10):
            while await session.ping() != 410:
                await asyncio.sleep(0.01)


@pytest.mark.conformance("I5")
@pytest.mark.parametrize("tool", ["limited", "limited_async"])
async def test_a_call_past_its_limit_reports_the_limit(api: Api, tool: str) -> None:
    await api.create()
    reply = await api.call(tool, how="sleep:5")
    assert reply.fault == "time_limit" and "0.3 s" in reply.error
    assert (await api.call("say", text="free again")).text == "free again"
    await api.delete()


@pytest.mark.conformance("I5")
async def test_the_server_has_limits_of_its_own_for_calls_and_setups() -> None:
    with server(call_time_limit_s=0.3, setup_time_limit_s=0.5) as limited:
        async with api_for(limited.url) as api:
            await api.create()
            assert (await api.call("do", how="sleep:2")).fault == "time_limit"
            slow = await api.other().create(setup="sleep:2")
            answer = await slow.get("/prompt")
            assert answer.status_code == 500 and answer.headers["x-orsay-fault"] == "time_limit"
            stuck = api.other()
            answer = await stuck.post("/create", {"task_spec": {"constructor": "sleep:2"}})
            assert answer.status_code == 500 and answer.headers["x-orsay-fault"] == "time_limit"


# limits


@pytest.mark.conformance("I6")
async def test_sizes_are_bounded() -> None:
    with server(max_body_bytes=5000, max_result_bytes=3000) as small:
        async with api_for(small.url) as api:
            await api.create()
            assert len((await api.call("say", text="x" * 2000)).text) == 2000
            assert (await api.call("fill", size=4000)).fault == "result_too_large"
            assert (await api.call("say", text="x" * 6000)).status == 413
            assert (await api.post("/create", {"task_spec": {"x": "y" * 6000}})).status_code == 413
            assert (await api.post("/scripted/tasks", {"split": "x" * 6000})).status_code == 413

            async def pieces() -> object:
                for _ in range(10):
                    yield b"x" * 1000

            answer = await api.http.post("/call", content=pieces(), headers={"X-Session-ID": api.sid})  # type: ignore[arg-type]
            assert answer.status_code == 413
            assert (await api.call("say", text="still")).text == "still"


@pytest.mark.conformance("I6")
async def test_sessions_and_calls_are_bounded(log: Log) -> None:
    keys = ["first-key-1234", "second-key-1234"]
    with server(max_sessions=3, max_sessions_per_key=2, max_calls=1, api_keys=keys) as small:
        async with api_for(small.url) as api:
            first, second = ({"X-API-Key": key} for key in keys)
            ones = [await api.other(**first).create(log=str(log.path)) for _ in range(2)]
            refused = await api.other(**first).post("/create", {"task_spec": {}})
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
            assert "this key is at maximum capacity" in refused.json()["detail"]
            two = await api.other(**second).create()
            refused = await api.other(**second).post("/create", {"task_spec": {}})
            assert refused.status_code == 429 and "server at maximum capacity" in refused.json()["detail"]
            call = asyncio.ensure_future(ones[0].call("add_later", gate=log.gate("open")))
            await log.has("add")
            busy = await two.call("say", text="x")
            assert busy.status == 429 and busy.response.headers["retry-after"] == "2"
            log.open("open")
            assert (await call).text == "1"
            assert (await two.call("say", text="x")).text == "x"
            await ones[0].delete()
            await api.other(**first).create()


@pytest.mark.conformance("B1")
async def test_a_body_that_never_ends_or_breaks_off_harms_nobody(served: ServerProcess, api: Api) -> None:
    await api.create()
    request = raw_request("/call", api.sid, {"name": "say", "input": {"text": "x" * 1000}})
    for cut in (10, len(request) // 2, len(request) - 1):
        await send_and_vanish(served.url, request[:cut])
    _, waiting = await connect(served.url)
    waiting.write(request[:-5])
    await waiting.drain()
    assert (await api.call("say", text="fine")).text == "fine"
    with suppress(ConnectionError, httpx.HTTPError):
        waiting.close()
        await waiting.wait_closed()
    await api.delete()
