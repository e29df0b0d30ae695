"""A gateway in front of a server of ours, where nothing is lost on the way, and two gateways in a row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from orsay.cli import main
from orsay.runtimes.remote.options import RemoteOptions
from orsay.serving.assembly import Running
from orsay_client import AsyncClient, SetupError, ToolError
from pydantic import SecretStr

from ..support.author_log import Log
from ..support.gateways import gateway, reached, upstream
from ..support.server_process import ServerProcess, server
from ..support.session_api import Api, api_for
from ..support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> AsyncIterator[ServerProcess]:
    """One of ours that hides exceptions, asks for a key and takes sessions for idle soon."""
    with server(
        api_keys=["upstream-key"], error_detail="id", idle_limit_s=2, log_format="json", workers=2
    ) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def front(behind: ServerProcess) -> AsyncIterator[Running]:
    options = RemoteOptions(api_key=SecretStr("upstream-key"), ping_s=0.5, health_s=0.5)
    async with gateway(behind.url, options=options, label="behind") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def api(front: Running) -> AsyncIterator[Api]:
    async with api_for(front.url) as found:
        yield found


async def test_all_that_is_known_of_environments_comes_over(front: Running, behind: ServerProcess) -> None:
    async with httpx.AsyncClient() as http:
        here = (await http.get(f"{front.url}/environments")).json()
        there = await http.get(f"{behind.url}/environments", headers={"X-API-Key": "upstream-key"})
    assert here == there.json()
    assert here[0]["tool_time_limits_s"] == {"limited": 0.3, "limited_async": 0.3, "limited_to_a_second": 1.0}
    assert here[0]["detached_tools"] == ["detached"]


async def test_what_the_upstream_hides_stays_hidden_and_the_id_joins_the_logs(
    api: Api, behind: ServerProcess
) -> None:
    await api.create()
    reply = await api.call("do", how="ValueError")
    assert reply.fault == "tool_error"
    number = reply.error.rpartition(" ")[2]
    assert reply.error == f"tool_error: see the server's log for id {number}"
    await until(lambda: any(line["id"] == number for line in behind.events("fault")))
    logged = next(line for line in behind.events("fault") if line["id"] == number)
    assert logged["message"] == "ValueError: no such door" and "Traceback" in logged["traceback"]
    await api.delete()


async def test_what_the_upstream_shows_is_hidden_by_a_gateway_that_hides() -> None:
    with server(runtime="local") as shows:
        async with reached(shows.url, error_detail="id") as (_, api):
            await api.create()
            reply = await api.call("do", how="ValueError")
            assert "no such door" not in reply.response.text and "see the server's log" in reply.error
            await api.create()
            await api.delete()
        async with reached(shows.url, error_detail="exception") as (_, api):
            await api.create()
            assert (await api.call("do", how="ValueError")).error == "ValueError: no such door"
            await api.delete()


async def test_labels_and_secrets_arrive_and_secrets_are_in_no_log(
    front: Running, behind: ServerProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    async with AsyncClient(front.url) as client:
        opened = client.environment("scripted").session(
            task_spec={}, secrets={"token": "swordfish-1234"}, run_labels={"step": 7}
        )
        async with opened as session:
            output = await session.call("secret", {"how": "return"})
            assert output.blocks[0].text == "swordfish-1234"  # type: ignore[union-attr]  # it is text
            with pytest.raises(ToolError):
                await session.call("secret", {"how": "raise"})
    await until(lambda: any('"step":7' in line.get("run", "") for line in behind.events("session_ended")))
    assert "swordfish" not in behind.everything + "".join(capfd.readouterr())


async def test_an_idle_session_is_kept_alive_at_an_upstream_with_a_short_limit(api: Api) -> None:
    await api.create()
    await asyncio.sleep(4)  # twice the limit
    assert (await api.call("add")).text == "1"
    await api.delete()


async def test_a_delete_reaches_the_upstream_and_waits_for_teardown(api: Api, log: Log) -> None:
    await api.create(log=str(log.path), teardown="sleep:0.2")
    await api.delete()
    assert log.lines[-2:] == ["teardown", "gone"]


async def test_a_teardown_that_fails_is_reported_by_both(api: Api, behind: ServerProcess) -> None:
    await api.create(teardown="ValueError")
    answer = (await api.post("/delete")).json()
    assert answer["sid"] == api.sid and answer["fault"]["class"] == "setup_error"
    number = answer["fault"]["id"]
    await until(lambda: any(line["id"] == number for line in behind.events("fault")))


async def test_a_call_is_cancelled_by_its_task_id_down_to_the_tool(api: Api, log: Log) -> None:
    await api.create(log=str(log.path))
    body = {"name": "second", "input": {"gate": log.gate("never")}}
    async with api.http.stream("POST", "/call", json=body, headers={"X-Session-ID": api.sid}) as stream:
        pieces = stream.aiter_bytes()
        task_id = (await anext(pieces)).decode().split()[-1]
        await log.has("second+")
        assert (await api.post("/cancel", {"task_id": "f" * 32})).json() == {"cancelled": False}
        assert (await api.post("/cancel", {"task_id": task_id})).json() == {"cancelled": True}
        rest = b"".join([piece async for piece in pieces])
    assert b'"class":"cancelled"' in rest
    await log.has("second-")
    assert (await api.call("say", text="on")).text == "on"
    await api.delete()


async def test_a_call_is_cancelled_by_its_key(api: Api, log: Log) -> None:
    await api.create(log=str(log.path))
    calling = asyncio.ensure_future(
        api.call("second", gate=log.gate("never"), headers={"Idempotency-Key": "the-key"})
    )
    await log.has("second+")
    answer = await api.post("/cancel", **{"Idempotency-Key": "the-key"})
    assert answer.json() == {"cancelled": True}
    assert (await calling).fault == "cancelled"
    await log.has("second-")
    await api.delete()


async def test_cancel_says_what_it_misses(api: Api) -> None:
    await api.create()
    answer = await api.post("/cancel")
    assert answer.status_code == 400 and "task_id" in answer.json()["detail"]
    await api.delete()
    assert (await api.post("/cancel", {"task_id": "f" * 32})).status_code == 410


async def test_a_call_that_nobody_reads_is_stopped_at_the_upstream_too(
    behind: ServerProcess, log: Log
) -> None:
    options = RemoteOptions(api_key=SecretStr("upstream-key"))
    front = gateway(behind.url, options=options, client_grace_s=0.2)
    async with front as running, api_for(running.url) as api:
        await api.create(log=str(log.path))
        body, headers = {"name": "second", "input": {"gate": log.gate("never")}}, {"X-Session-ID": api.sid}
        async with api.http.stream("POST", "/call", json=body, headers=headers) as stream:
            await anext(stream.aiter_bytes())
            await log.has("second+")
        await log.has("second-")
        await api.delete()


async def test_the_gateways_time_limit_stops_the_tool_at_the_upstream(
    behind: ServerProcess, log: Log
) -> None:
    options = RemoteOptions(api_key=SecretStr("upstream-key"))
    front = gateway(behind.url, options=options, call_time_limit_s=0.5)
    async with front as running, api_for(running.url) as api:
        await api.create(log=str(log.path))
        assert (await api.call("second", gate=log.gate("never"))).fault == "time_limit"
        await log.has("second-")
        await api.delete()


async def test_setup_that_fails_is_reported_with_its_class(front: Running) -> None:
    async with AsyncClient(front.url) as client:
        opened = client.environment("scripted").session(task_spec={"setup": "ValueError"})
        async with opened as session:
            with pytest.raises(SetupError):
                await session.prompt()


async def test_requests_wait_for_setup_at_the_upstream(api: Api, log: Log) -> None:
    await api.create(log=str(log.path), setup=f"wait:{log.gate('setup')}")
    prompting = asyncio.ensure_future(api.get("/prompt"))
    await log.has("setup")
    assert not prompting.done()
    log.open("setup")
    assert (await prompting).status_code == 200
    await api.delete()


async def test_a_limit_of_the_upstream_is_passed_on_as_one() -> None:
    with server(runtime="local", max_sessions=1) as small:
        async with reached(small.url) as (_, api):
            await api.create()
            other = api.other()
            refused = await other.post("/create", {"env_name": "scripted", "task_spec": {}})
            assert refused.status_code == 429 and "maximum capacity" in refused.json()["detail"]
            assert refused.headers["X-Orsay-Fault"] == "overloaded" and refused.headers["Retry-After"]
            await api.delete()
            await other.create()
            await other.delete()


async def test_tasks_stay_on_the_server_of_a_gateway_by_index_only(behind: ServerProcess) -> None:
    options = RemoteOptions(api_key=SecretStr("upstream-key"))
    async with reached(behind.url, options=options, index_only=True) as (_, api):
        tasks = (await api.post("/scripted/tasks", {"split": "train"})).json()["tasks"]
        assert tasks == [{"split": "train", "index": n} for n in range(3)]
        refused = await api.post("/create", {"env_name": "scripted", "task_spec": {"number": 9}})
        assert refused.status_code == 400
        created = await api.post("/create", {"env_name": "scripted", "task_spec": tasks[2]})
        assert created.status_code == 200
        assert (await api.get("/prompt")).json()[0]["text"] == "Task 2"
        await api.delete()


async def test_a_gateway_in_front_of_a_gateway_is_one_server_to_its_clients(front: Running, log: Log) -> None:
    async with gateway(front.url, label="front") as outer, api_for(outer.url) as api:
        assert (await api.get("/list_environments")).json() == ["scripted", "asyncscripted", "plain"]
        await api.create(log=str(log.path), setup="sleep:0.3")
        assert (await api.get("/prompt")).status_code == 200
        assert (await api.call("fill", size=200_000)).text == "x" * 200_000
        reply = await api.call("do", how="ValueError")
        assert reply.fault == "tool_error" and "see the server's log" in reply.error
        calling = asyncio.ensure_future(
            api.call("second", gate=log.gate("never"), headers={"Idempotency-Key": "far"})
        )
        await log.has("second+")
        await api.post("/cancel", **{"Idempotency-Key": "far"})
        assert (await calling).fault == "cancelled"
        await log.has("second-")
        await api.delete()
        assert log.count("teardown") == 1


async def test_the_contract_holds_through_a_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    with upstream("orsay") as url:
        async with gateway(url) as running:
            code = await asyncio.to_thread(main, ["check", running.url, "--env", "kit"])
    shown = capsys.readouterr().out
    assert code == 0 and "0 failed" in shown, shown
    assert "1 not supported" in shown, "S1 wants a key; everything else is supported by the kit"
