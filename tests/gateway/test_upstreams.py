"""Servers behind a gateway that are down, come up, break off, are killed, or are no servers at all."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from orsay.errors import ConfigError, LoadError
from orsay.runtimes.base import EnvironmentInfo
from orsay.runtimes.remote.runtime import RemoteRuntime
from orsay.runtimes.router import Member, RouterRuntime
from orsay.serving.assembly import Running
from pydantic import SecretStr

from ..support.author_log import Log
from ..support.cut_proxy import CutProxy
from ..support.gateways import QUICK, RELEASED, UPSTREAMS, gateway_of, reached, under, upstream
from ..support.scripted_server import Reply, Request, ScriptedServer, ors
from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import Api, api_for
from ..support.sockets import free_port
from ..support.waiting import until

pytestmark = pytest.mark.process

WATCHFUL = replace(QUICK, health_s=0.2)
IMPATIENT = replace(WATCHFUL, start_wait_s=0.2)  # for servers that are down at the start


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.fixture(scope="module")
def behind() -> Iterator[ServerProcess]:
    """A server of ours that stays up."""
    with server() as found:
        yield found


def start(port: int) -> ServerProcess:
    found = ServerProcess(
        ["--port", str(port), f"{ENVIRONMENTS}:Scripted", f"{ENVIRONMENTS}:Plain"], {"ORSAY_RUNTIME": "local"}
    )
    try:
        found.wait_for_url()
    except BaseException:
        found.end()
        raise
    return found


@asynccontextmanager
async def started(port: int) -> AsyncIterator[ServerProcess]:
    found = await asyncio.to_thread(start, port)
    try:
        yield found
    finally:
        await asyncio.to_thread(found.end)


@asynccontextmanager
async def upstream_of_kit() -> AsyncIterator[str]:
    with upstream("orsay") as url:
        yield url


def is_reached(running: Running) -> bool:
    assert isinstance(running.runtime, RemoteRuntime)
    return running.runtime.upstream.up


async def is_up(running: Running) -> None:
    await until(lambda: running.runtime.environments and is_reached(running))


async def test_an_upstream_that_is_down_at_the_start_is_served_when_it_comes_up() -> None:
    port = free_port()
    async with reached(f"http://127.0.0.1:{port}", options=IMPATIENT) as (running, api):
        assert list(running.runtime.pending) == [f"127.0.0.1:{port}"]
        assert (await api.get("/health")).status_code == 200
        for answer in (
            await api.get("/list_environments"),
            await api.post("/create", {"env_name": "scripted", "task_spec": {}}),
        ):
            assert answer.status_code == 503
            assert answer.headers["X-Backend-State"] == "starting" and answer.headers["Retry-After"]
            assert f"127.0.0.1:{port}" in answer.json()["detail"]
        async with started(port):
            await is_up(running)
            assert list(running.runtime.pending) == []
            await api.create()
            assert (await api.call("say", text="here")).text == "here"
            await api.delete()


@pytest.mark.parametrize("headers", [{"X-Backend-State": "starting"}, {}], ids=["its own", "its proxy's"])
async def test_a_server_of_ours_is_known_as_ours_after_a_first_answer_of_503(headers: dict[str, str]) -> None:
    described = EnvironmentInfo.unknown("wild").model_copy(update={"replayable": True})
    inner = under("wild", ors(orsay=True))
    asked: list[str] = []

    async def coming_up(request: Request, reply: Reply) -> None:
        asked.append(request.path)
        if request.path == "/version" and asked.count("/version") == 1:
            await reply.json({"detail": "not yet"}, 503, headers)
        elif request.path == "/version":
            await reply.json({"version": "1", "server": "orsay"})
        elif request.path == "/environments":
            await reply.json([described.model_dump(mode="json")])
        else:
            await inner(request, reply)

    async with ScriptedServer(coming_up) as behind, reached(behind.url, options=IMPATIENT) as (running, _):
        await is_up(running)
        assert list(running.runtime.environments) == [described]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_proxy_that_routes_the_paths_of_the_standard_only_is_no_obstacle(status: int) -> None:
    inner = under("wild", ors())

    async def proxy(request: Request, reply: Reply) -> None:
        if request.path == "/version":
            await reply.raw(b"no backend for this path", status)
        else:
            await inner(request, reply)

    async with ScriptedServer(proxy) as behind, reached(behind.url, options=WATCHFUL) as (_, api):
        await api.create("wild")
        assert (await api.call("act")).text == "ok"
        await api.delete()


async def test_an_upstream_that_is_killed_in_mid_call_is_lost_and_served_again_when_it_is_back(
    log: Log, capfd: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    async with started(port) as first, reached(first.url, options=WATCHFUL) as (running, api):
        await api.create(log=str(log.path))
        idle = await api.other().create()
        calling = asyncio.ensure_future(api.call("second", gate=log.gate("never")))
        await log.has("second+")
        first.signal(signal.SIGKILL)
        reply = await calling
        assert reply.fault == "worker_lost" and first.url.removeprefix("http://") in reply.error
        assert await api.ping() == 410
        refused = await api.other().post("/create", {"env_name": "scripted", "task_spec": {}})
        assert refused.status_code == 503 and refused.headers["X-Backend-State"] == "starting"
        assert (await api.get("/list_environments")).json() == ["scripted", "plain"]
        async with started(port):
            await is_up(running)
            again = await api.other().create()
            assert (await again.call("say", text="again")).text == "again"
            await again.delete()
            lost = await idle.call("say", text="lost")
            assert lost.fault == "worker_lost"
            assert await idle.ping() == 410
            output = capfd.readouterr().out  # before the second one ends
    # Logged at each change; on a busy machine an answer may come too late now and then.
    assert 1 <= output.count("upstream_down") == output.count("upstream_up") - 1


async def test_sessions_at_other_upstreams_go_on_when_one_is_killed(log: Log) -> None:
    async with started(free_port()) as first, upstream_of_kit() as second:
        members = [Member(url, RemoteRuntime(url, WATCHFUL)) for url in (first.url, second)]
        async with gateway_of(RouterRuntime(members)) as running, api_for(running.url) as api:
            await api.create(log=str(log.path))
            other = api.other()
            body = {"env_name": "kit", "split": "train", "index": 0}
            assert (await other.post("/create", body)).status_code == 200
            calling = asyncio.ensure_future(api.call("second", gate=log.gate("never")))
            going_on = asyncio.ensure_future(other.call("slow", seconds=2, text="went on"))
            await log.has("second+")
            first.signal(signal.SIGKILL)
            assert (await calling).fault == "worker_lost"
            assert (await going_on).text == "went on"
            assert (await other.call("add", n=1)).text == "1"
            await other.delete()


async def test_a_session_that_its_upstream_lost_is_noticed_by_the_next_ping() -> None:
    port = free_port()
    options = replace(WATCHFUL, ping_s=0.4)
    async with started(port) as first, reached(first.url, options=options) as (running, api):
        await api.create()
        first.signal(signal.SIGKILL)
        await until(lambda: not is_reached(running))
        async with started(port):
            await until(lambda: not len(running.sessions))
            assert await api.ping() == 410


async def test_a_worker_that_dies_behind_an_upstream_is_reported_as_that(behind: ServerProcess) -> None:
    async with reached(behind.url) as (_, api):
        await api.create()
        reply = await api.call("do", how="os._exit")
        assert reply.fault == "worker_lost" and "exit code 7" in reply.error
        gone = await api.post("/ping")
        assert gone.status_code == 410 and gone.headers["X-Orsay-Fault"] == "worker_lost"
        other = await api.other().create()
        await other.delete()


# connections


@asynccontextmanager
async def cut(kind_url: str) -> AsyncIterator[tuple[CutProxy, Api]]:
    async with CutProxy(kind_url) as proxy, reached(proxy.url, options=QUICK) as (_, api):
        yield proxy, api


async def test_a_connection_cut_before_the_answer_runs_the_tool_once_at_one_of_ours(
    behind: ServerProcess, log: Log
) -> None:
    async with cut(behind.url) as (proxy, api):
        await api.create(log=str(log.path))
        proxy.cut(b'"add"')
        assert (await api.call("add")).text == "1"
        assert proxy.cuts == 1 and log.count("add") == 1
        await api.delete()


@pytest.mark.parametrize("kind", UPSTREAMS)
async def test_a_connection_cut_in_mid_stream_runs_the_tool_once(kind: str) -> None:
    with upstream(kind) as url:
        async with cut(url) as (proxy, api):
            created = await api.post("/create", {"env_name": "kit", "split": "train", "index": 0})
            assert created.status_code == 200
            proxy.cut(b'"add"', answer=b"event: task_id")
            slow = asyncio.ensure_future(api.call("slow", seconds=1.0))
            assert (await api.call("add", n=3)).text == "3"
            assert (await api.call("add", n=3)).text == "6"
            assert (await slow).text == "rested"
            assert proxy.cuts == 1
            await api.delete()


async def test_create_is_repeated_when_its_connection_breaks(behind: ServerProcess, log: Log) -> None:
    async with cut(behind.url) as (proxy, api):
        proxy.cut(b"POST /create ", times=2)
        await api.create(log=str(log.path))
        assert proxy.cuts == 2 and log.count("construct") == 1
        proxy.cut(b"GET /scripted/prompt")
        assert (await api.get("/prompt")).status_code == 200
        proxy.cut(b"POST /delete")
        await api.delete()
        assert log.count("teardown") == 1


@pytest.mark.parametrize("kind", RELEASED)
async def test_create_is_repeated_at_released_servers_too(kind: str) -> None:
    with upstream(kind) as url:
        async with cut(url) as (proxy, api):
            proxy.cut(b"POST /create ")
            created = await api.post("/create", {"env_name": "kit", "split": "train", "index": 0})
            assert created.status_code == 200 and proxy.cuts == 1
            assert (await api.call("add", n=1)).text == "1"
            await api.delete()


@pytest.mark.parametrize("kind", ["orsay", RELEASED[0]])
async def test_however_often_connections_break_each_call_runs_once(kind: str) -> None:
    async def play(api: Api) -> list[str]:
        assert (
            await api.post("/create", {"env_name": "kit", "split": "train", "index": 0})
        ).status_code == 200
        counts = [(await api.call("add", n=1)).text for _ in range(10)]
        await api.delete()
        return counts

    with upstream(kind) as url:
        async with cut(url) as (proxy, api):
            if kind == "orsay":  # the others do not know what they did before they named it
                proxy.cut(b'"add"', times=12)
            proxy.cut(b'"add"', answer=b"event: task_id", times=12)
            proxy.cut(b'"add"', answer=b"event: end", times=6)
            played = await asyncio.gather(*(play(api.other()) for _ in range(16)))
        assert proxy.cuts >= 18
    assert played == [[str(n) for n in range(1, 11)]] * 16


# what is no server


async def fails_to_start(url: str, **options: object) -> str:
    runtime = RemoteRuntime(url, replace(WATCHFUL, **options))  # type: ignore[arg-type]  # any option
    with pytest.raises(LoadError) as caught:
        await runtime.start()
    return str(caught.value)


async def test_a_wrong_key_stops_the_start_and_is_not_repeated() -> None:
    with server(runtime="local", api_keys=["right"]) as behind:
        for key in (None, SecretStr("wrong-key")):
            text = await fails_to_start(behind.url, api_key=key)
            assert "API key" in text and "wrong-key" not in text
        async with reached(behind.url, options=replace(QUICK, api_key=SecretStr("right"))) as (_, api):
            await api.create()
            await api.delete()


@pytest.mark.parametrize("status", [200, 404])
async def test_what_is_no_ors_server_stops_the_start(status: int) -> None:
    async def page(request: Request, reply: Reply) -> None:
        await reply.raw(b"<html>Welcome</html>", status, {"Content-Type": "text/html"})

    async with ScriptedServer(page) as behind:
        text = await fails_to_start(behind.url)
        assert "no ORS server" in text and "is the URL right?" in text


async def test_a_server_that_sends_us_elsewhere_stops_the_start() -> None:
    async def moved(request: Request, reply: Reply) -> None:
        await reply.raw(b"", 307, {"Location": "https://elsewhere.example/"})

    async with ScriptedServer(moved) as behind:
        assert "https://elsewhere.example" in await fails_to_start(behind.url)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://", "", "http://host:99999"])
def test_what_is_no_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="http://host:8080"):
        RemoteRuntime(url)


async def test_an_upstream_may_live_under_a_path_and_the_url_may_end_with_a_slash() -> None:
    seen: list[str] = []
    inner = under("wild", ors())

    async def below(request: Request, reply: Reply) -> None:
        seen.append(request.path)
        assert request.path.startswith("/deep/down/")
        await inner(replace(request, path=request.path.removeprefix("/deep/down")), reply)

    async with ScriptedServer(below) as behind, reached(f"{behind.url}/deep/down/") as (_, api):
        await api.create("wild")
        assert (await api.call("act")).text == "ok"
        await api.delete()
    assert "/deep/down/wild/call" in seen


async def test_user_and_password_of_a_url_are_sent_and_never_shown(capfd: pytest.CaptureFixture[str]) -> None:
    seen: set[str] = set()
    inner = under("wild", ors())

    async def guarded(request: Request, reply: Reply) -> None:
        seen.add(request.headers.get("authorization", ""))
        await inner(request, reply)

    async with ScriptedServer(guarded) as behind:
        url = behind.url.replace("http://", "http://jo:swordfish@")
        async with reached(url) as (_, api):
            await api.create("wild")
            await api.delete()
    assert seen == {"Basic am86c3dvcmRmaXNo"}
    assert "swordfish" not in "".join(capfd.readouterr())
