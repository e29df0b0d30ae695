"""A session's life is a state machine: L1 to L6 on real servers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from ..support.author_log import Log
from ..support.server_process import ENVIRONMENTS, ServerProcess, children, is_running, server
from ..support.session_api import Api, api_for
from ..support.sockets import raw_request, send_and_vanish
from ..support.waiting import until

pytestmark = pytest.mark.process

# L1


@pytest.mark.conformance("L1")
async def test_create_may_be_repeated_with_the_same_body_only(api: Api, log: Log) -> None:
    await api.create(log=str(log.path))
    await api.create(log=str(log.path))
    other = await api.post("/create", {"env_name": "scripted", "task_spec": {"other": 1}})
    assert other.status_code == 409 and "Session already exists" in other.json()["detail"]
    await api.get("/prompt")
    assert log.lines == ["construct", "constructed", "setup", "ready"]
    await api.delete()


@pytest.mark.conformance("L1")
@pytest.mark.parametrize("fails", [False, True])
async def test_creates_at_once_build_one_instance(api: Api, log: Log, fails: bool) -> None:
    spec = {"log": str(log.path), "constructor": f"wait:{log.gate('open')}", "setup": "sleep:0.1"}
    if fails:
        spec["setup"] = "ValueError"
    body = {"env_name": "scripted", "task_spec": spec}
    creating = [asyncio.ensure_future(api.post("/create", body)) for _ in range(20)]
    await log.has("construct")
    other = asyncio.ensure_future(api.post("/create", {"env_name": "scripted", "task_spec": {}}))
    assert (await other).status_code == 409
    log.open("open")
    assert {(await each).status_code for each in creating} == {200}
    assert (await api.get("/prompt")).status_code == (500 if fails else 200)
    await api.delete()
    counts = Counter(log.lines)
    assert counts["construct"] == counts["setup"] == counts["teardown"] == 1


@pytest.mark.conformance("L1")
async def test_a_create_that_failed_may_be_tried_again(api: Api) -> None:
    assert (
        await api.post("/create", {"env_name": "scripted", "task_spec": {"constructor": "ValueError"}})
    ).status_code == 500
    await api.create()
    await api.delete()


# L2


@pytest.mark.conformance("L2")
async def test_delete_during_construction_leaves_nothing(api: Api, log: Log) -> None:
    body = {"env_name": "scripted", "task_spec": {"log": str(log.path), "constructor": "wait:/nowhere"}}
    creating = asyncio.ensure_future(api.post("/create", body))
    await log.has("construct")
    await api.delete()
    assert (await creating).status_code == 410
    assert await api.ping() == 410
    assert "setup" not in log.lines and log.count("teardown") == log.count("constructed") == 0


@pytest.mark.conformance("L2")
@pytest.mark.parametrize("env", ["scripted", "asyncscripted"])
async def test_delete_during_setup_tears_down_once_and_wakes_who_waits(api: Api, log: Log, env: str) -> None:
    await api.create(env, log=str(log.path), setup="wait:/nowhere")
    await log.has("setup")
    waiting = [asyncio.ensure_future(api.get("/prompt")), asyncio.ensure_future(api.get("/messages"))]
    await asyncio.sleep(0.1)
    await asyncio.gather(*(api.delete() for _ in range(5)))
    assert log.count("teardown") == log.count("gone") == 1 and "ready" not in log.lines
    for each in waiting:
        answer = await each
        assert answer.status_code == 410 and answer.json()["detail"] == "Session deleted"


@pytest.mark.conformance("L2")
@pytest.mark.parametrize("tool", ["first", "second"])
async def test_delete_during_calls_ends_them_and_tears_down_once(api: Api, log: Log, tool: str) -> None:
    await api.create(log=str(log.path))
    calls = [asyncio.ensure_future(api.call(tool, gate=log.gate("never"))) for _ in range(3)]
    await log.has(f"{tool}+")
    await asyncio.sleep(0.1)
    await api.delete()
    assert log.count("teardown") == log.count("gone") == 1
    assert {(await call).fault for call in calls} == {"cancelled"}
    assert await api.ping() == 410


@pytest.mark.conformance("L2")
async def test_delete_while_deleting_waits_for_the_same_end(api: Api, log: Log) -> None:
    await api.create(log=str(log.path), teardown=f"wait:{log.gate('open')}")
    deleting = [asyncio.ensure_future(api.delete()) for _ in range(5)]
    await log.has("teardown")
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in deleting)
    assert (await api.call("say", text="x")).status == 410
    log.open("open")
    await asyncio.gather(*deleting)
    assert log.count("teardown") == 1


@pytest.mark.conformance("L2")
async def test_a_session_may_be_created_anew_after_its_end(api: Api) -> None:
    for _ in range(3):
        await api.create()
        assert (await api.call("add")).text == "1"
        await api.delete()


# L3


@pytest.mark.conformance("L3")
async def test_a_session_expires_when_idle_but_not_under_a_call_or_a_reader(log: Log) -> None:
    with server(f"{ENVIRONMENTS}:Scripted", idle_limit_s=0.5) as strict:
        async with api_for(strict.url) as api:
            idle = await api.other().create(log=str(log.path))
            busy, pinged, setting_up = [await api.other().create(log=str(log.path)) for _ in range(2)] + [
                await api.other().create(setup=f"wait:{log.gate('setup')}")
            ]
            reading = await api.other().create(prompt=f"wait:{log.gate('open')}")
            prompt = asyncio.ensure_future(reading.get("/prompt"))
            call = asyncio.ensure_future(busy.call("add_later", gate=log.gate("open")))
            await log.has("add")
            async with asyncio.timeout(10):
                while not log.count("gone"):
                    await pinged.ping()
                    await asyncio.sleep(0.1)
            for _ in range(20):
                await pinged.ping()
                await asyncio.sleep(0.1)
            gone = await idle.post("/ping")
            assert gone.status_code == 410 and "idle for 0.5 s" in gone.json()["detail"]
            assert gone.headers["x-orsay-fault"] == "session_gone"
            assert await setting_up.ping() == 200, "a session that sets up is not idle"
            log.open("open")
            assert (await call).text == "1"
            assert (await prompt).status_code == 200, "a session whose prompt is being made is not idle"
            assert await pinged.ping() == 200
            assert log.count("gone") == 1


@pytest.mark.conformance("L3")
async def test_a_session_ends_at_its_greatest_age() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", lifetime_limit_s=1) as strict:
        async with api_for(strict.url) as api:
            await api.create()
            async with asyncio.timeout(10):
                while await api.ping() == 200:
                    await asyncio.sleep(0.05)
            gone = await api.post("/ping")
            assert gone.status_code == 410 and "older than 1 s" in gone.json()["detail"]


# L4


@pytest.mark.conformance("L4")
async def test_a_session_that_is_gone_answers_410_for_a_while_and_then_404() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", gone_memory_s=1) as forgetful:
        async with api_for(forgetful.url) as api:
            await api.create()
            await api.delete()
            for path in ("/prompt", "/messages", "/task_tools"):
                assert (await api.get(path)).status_code == 410
            assert (await api.call("say", text="x")).status == 410
            assert (await api.post("/score_group", {"candidates": []})).status_code == 410
            assert (await api.post("/ping")).json() == {"detail": "Session deleted"}
            await api.delete()
            async with asyncio.timeout(10):
                while await api.ping() == 410:
                    await asyncio.sleep(0.1)
            assert await api.ping() == 404


@pytest.mark.conformance("L4")
async def test_a_session_that_never_was_answers_404_and_takes_no_memory(
    served: ServerProcess, api: Api
) -> None:
    def resident() -> int:
        with open(f"/proc/{served.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def ask(number: int, rounds: int) -> None:
        for each in range(rounds):
            session = Api(api.http, f"{number}-{each}-" + "x" * 200)
            assert await session.ping() == 404
            assert (await session.post("/delete")).status_code == 200

    await asyncio.gather(*(ask(n, 20) for n in range(10)))
    before = resident()
    await asyncio.gather(*(ask(n + 10, 50) for n in range(10)))
    assert resident() - before < 400_000, "a thousand unknown ids of 200 bytes left a trace"


# L5


@pytest.mark.conformance("L5")
async def test_a_call_whose_client_stays_away_is_stopped_unless_it_is_detached(log: Log) -> None:
    with server(f"{ENVIRONMENTS}:Scripted", client_grace_s=0.3) as strict:
        async with api_for(strict.url) as api:
            one = await api.other().create(log=str(log.path))
            two = await api.other().create(log=str(log.path))
            second = {"name": "second", "input": {"gate": log.gate("never")}}
            detached = {"name": "detached", "input": {"gate": log.gate("open")}}
            await send_and_vanish(strict.url, raw_request("/call", one.sid, second))
            await send_and_vanish(strict.url, raw_request("/call", two.sid, detached))
            await log.has("second+")
            await log.has("detached+")
            await log.has("second-")  # cancelled
            log.open("open")
            await log.has("detached-")
        strict.end()
        faults = [(line["fault"], line["tool"]) for line in strict.events("fault")]
    assert faults == [("cancelled", "second")]


@pytest.mark.conformance("L5", "D2")
async def test_a_client_that_comes_back_in_time_keeps_its_call(log: Log) -> None:
    with server(f"{ENVIRONMENTS}:Scripted", client_grace_s=1) as strict:
        async with api_for(strict.url) as api:
            await api.create(log=str(log.path))
            body = {"name": "add_later", "input": {"gate": log.gate("open")}}
            await send_and_vanish(strict.url, raw_request("/call", api.sid, body))
            await log.has("add")
            back = asyncio.ensure_future(api.call("add_later", gate=log.gate("open")))
            await asyncio.sleep(2.5)  # past the grace time and a sweep
            assert not back.done()
            log.open("open")
            assert (await back).text == "1"
            assert log.count("add") == 1


# L6


@pytest.mark.conformance("L6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("runtime", ["process", "local"])
async def test_shutdown_lets_calls_finish_and_tears_all_down(
    log: Log, runtime: str, number: signal.Signals
) -> None:
    with server(f"{ENVIRONMENTS}:Scripted", runtime=runtime, shutdown_grace_s=20, workers=2) as ending:
        async with api_for(ending.url) as api:
            playing = await api.other().create(log=str(log.path))
            idle = await api.other().create(log=str(log.path))
            call = asyncio.ensure_future(playing.call("add_later", gate=log.gate("open")))
            await log.has("add")
            workers = children(ending.pid)
            ending.signal(number)
            await until(lambda: ending.events("waiting_for_calls"))
            refused = await api.other().post("/create", {"task_spec": {}})
            assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
            assert refused.headers["x-orsay-fault"] == "shutdown"
            assert await idle.ping() == 200
            log.open("open")
            assert (await call).text == "1"
        assert await asyncio.to_thread(ending.wait) == 0
        assert log.count("teardown") == log.count("gone") == 2
        assert not any(is_running(pid) for pid in workers)
        assert ending.events("waiting_for_calls")[0]["running"] == 1
        assert len(ending.events("session_ended")) == 2, ending.everything


@pytest.mark.conformance("L6")
async def test_shutdown_does_not_wait_for_ever(log: Log) -> None:
    with server(
        f"{ENVIRONMENTS}:Scripted", shutdown_grace_s=0.5, teardown_time_limit_s=0.5, workers=2
    ) as ending:
        async with api_for(ending.url) as api:
            sessions = [
                await api.other().create(log=str(log.path), teardown="wait:/nowhere") for _ in range(2)
            ]
            calls = [
                asyncio.ensure_future(sessions[0].call("do_async", how="stubborn:/nowhere")),
                asyncio.ensure_future(sessions[1].call("do", how="sleep:60")),
            ]
            for session in sessions:  # answered after the calls above have begun
                assert (await session.call("say", text="on")).text == "on"
            ending.signal(signal.SIGTERM)
            for call in calls:
                try:
                    assert (await call).fault in ("cancelled", "shutdown", "worker_lost")
                except httpx.TransportError:
                    raise AssertionError("a stream without an end") from None
        assert await asyncio.to_thread(ending.wait, 20) == 0


@pytest.mark.conformance("L6")
async def test_no_worker_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    async def killed(process: ServerProcess, busy: str | None) -> int:
        """How many sessions were torn down."""
        workers = children(process.pid)
        assert len(workers) == 2
        folder = tmp_path / str(busy)
        folder.mkdir()
        log = Log(folder)
        async with api_for(process.url) as api:
            await api.create(log=str(log.path))
            if busy is not None:
                call = asyncio.ensure_future(api.call(busy, how="sleep:60"))
                await asyncio.sleep(0.2)
                call.cancel()
            process.signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait)
        await until(lambda: not any(is_running(pid) for pid in workers), timeout_s=20)
        return log.count("teardown")

    with ExitStack() as stack:
        ends = []
        for busy in (None, "do", "do_async"):
            found = server(f"{ENVIRONMENTS}:Scripted", teardown_time_limit_s=1, workers=2)
            ends.append(killed(stack.enter_context(found), busy))
        assert await asyncio.gather(*ends) == [1, 1, 1]


# waiting for setup


@pytest.mark.conformance("P-6-starting")
async def test_a_request_waits_for_setup_for_a_bounded_time(log: Log) -> None:
    with server(f"{ENVIRONMENTS}:Scripted", setup_wait_s=0.3) as strict:
        async with api_for(strict.url) as api:
            await api.create(log=str(log.path), setup=f"wait:{log.gate('open')}")
            await log.has("setup")
            for answer in (await api.get("/prompt"), (await api.call("add")).response):
                assert answer.status_code == 503 and answer.json() == {
                    "detail": "Environment still starting."
                }
                assert (
                    answer.headers["x-backend-state"] == "starting" and answer.headers["retry-after"] == "2"
                )
            log.open("open")
            assert (await api.get("/prompt")).status_code == 200
            assert (await api.call("add")).text == "1"
