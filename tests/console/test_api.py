"""The console's API about the server as it is now, on real servers."""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay.console.about import describe_environments
from orsay.runtimes.execution.episode import Limits
from orsay.runtimes.local import LocalRuntime
from orsay.runtimes.router import Member, RouterRuntime

from ..support.environments import Plain
from ..support.server_process import ENVIRONMENTS, ServerProcess, server
from ..support.session_api import api_for
from ..support.waiting import until
from .api import ALICE, BOB, KEYS, LIMIT_S, listening, raw_get

pytestmark = pytest.mark.process

STREAMS = 256
LIMITS = Limits(call_time_limit_s=60, setup_time_limit_s=60, teardown_time_limit_s=5, max_result_bytes=10**6)
GUARDS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "img-src 'self' data: blob:",
    "connect-src 'self'",
    "font-src 'self'",
    "frame-ancestors 'none'",
    "form-action 'none'",
)


@pytest.fixture(scope="module")
def plain() -> Iterator[ServerProcess]:
    """A server without keys."""
    with server(
        f"{ENVIRONMENTS}:Scripted", f"{ENVIRONMENTS}:Plain", server_name="tested", workers=2
    ) as found:
        yield found


@pytest.fixture(scope="module")
def locked() -> Iterator[ServerProcess]:
    """A server with two keys, whose clients read no text of exceptions."""
    with server(f"{ENVIRONMENTS}:Scripted", api_keys=KEYS, error_detail="id", runtime="local") as found:
        yield found


def get(served: ServerProcess, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{served.url}/console/api/{path}", headers=headers, timeout=LIMIT_S)


def test_the_server_describes_itself(plain: ServerProcess) -> None:
    found = get(plain, "server").json()
    assert found["name"] == "tested" and found["runtime"] == "process" and found["workers"] == 2
    assert found["keys"] is False and found["journal"] is None
    assert found["started_at"] <= found["now"] and abs(found["now"] - time.time()) < 3600


async def test_environments_show_their_tools_and_their_load(plain: ServerProcess) -> None:
    async with api_for(plain.url) as api:
        before = (await api.http.get("/console/api/environments")).json()
        one, two = await api.other().create("scripted"), await api.other().create("plain")
        after = (await api.http.get("/console/api/environments")).json()
        published = (await api.http.get("/scripted/tools")).json()["tools"]
        await one.delete()
        await two.delete()
    scripted, other = after
    assert (scripted["name"], scripted["key"], other["key"]) == ("Scripted", "scripted", "plain")
    assert scripted["tools"] == published and scripted["description"] == "Does what its task says."
    assert {split["name"] for split in scripted["splits"]} == {"train", "many", "none"}
    assert (
        scripted["state"] == "ready" and scripted["runtime"] == "process" and scripted["supports_score_group"]
    )
    assert [new["sessions"] - old["sessions"] for new, old in zip(after, before, strict=True)] == [1, 1]


async def test_an_environment_that_is_not_up_yet_is_pending() -> None:
    local = LocalRuntime([Plain], LIMITS, threads=1)
    runtime = RouterRuntime([Member("Far away", local)])
    (waiting,) = (await describe_environments(runtime, {}, "")).root
    assert (waiting.name, waiting.key, waiting.state) == ("Far away", "far away", "pending")
    await runtime.start()
    (ready,) = (await describe_environments(runtime, {}, "")).root
    assert (ready.name, ready.state, ready.runtime) == ("Plain", "ready", "local")
    await runtime.stop()


async def test_a_session_is_seen_from_its_beginning_to_its_end(plain: ServerProcess, tmp_path: Any) -> None:
    gate = tmp_path / "gate"
    async with api_for(plain.url) as api, listening(api.http) as stream, asyncio.timeout(LIMIT_S):
        label = {"X-Orsay-Run": json.dumps({"run": "r/ü\ud800", "step": 1})}
        created = await api.post("/create", {"env_name": "scripted", "task_spec": {}}, **label)
        assert created.status_code == 200

        def mine(snapshot: dict[str, Any]) -> Any:
            return next((each for each in snapshot["list"] if each["sid"] == api.sid), None)

        seen = mine(await stream.until(lambda snapshot: mine(snapshot)))
        assert seen["state"] == "ready" and seen["environment"] == "Scripted"
        assert seen["calls"] == 0 and seen["reward"] is None and not seen["finished"]
        assert seen["run"] == "r/ü\ufffd" and seen["task"].startswith("spec:")
        assert seen["id"] is None  # there is no journal

        call = asyncio.create_task(api.call("add_later", gate=str(gate)))
        running = await stream.until(lambda snapshot: (mine(snapshot) or {}).get("running") == 1)
        assert running["calls_running"] == 1 and running["total"] == len(running["list"])
        assert mine(running)["idle_s"] == 0
        gate.touch()
        await call
        reward = (await api.call("pay", reward="0.5")).result["output"]["reward"]
        paid = mine(await stream.until(lambda snapshot: mine(snapshot)["reward"] is not None))
        assert paid["reward"] == reward == 0.5 and paid["calls"] == 2 and paid["age_s"] > 0

        await api.delete()
        await stream.until(lambda snapshot: mine(snapshot) is None)


async def test_the_first_snapshot_comes_at_once_and_others_follow(plain: ServerProcess) -> None:
    async with api_for(plain.url) as api, asyncio.timeout(LIMIT_S), listening(api.http) as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        assert stream.response.headers["x-accel-buffering"] == "no"
        found = [await stream.next() for _ in range(3)]
    times = [each["at"] for each in found if each is not None]
    assert len(times) == 3 and times == sorted(times)
    assert set(found[0]["sessions"]) == {"opening", "starting", "ready", "failed", "closing"}  # type: ignore[index]


async def test_streams_are_bounded_and_given_up_when_their_client_goes(plain: ServerProcess) -> None:
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=plain.url, limits=limits) as http,
        AsyncExitStack() as stack,
        asyncio.timeout(LIMIT_S),
    ):
        first = await stack.enter_async_context(AsyncExitStack())
        streams = [await first.enter_async_context(listening(http))]
        streams += [await stack.enter_async_context(listening(http)) for _ in range(STREAMS - 1)]
        for each in streams:
            assert each.response.status_code == 200 and await each.next() is not None
        async with listening(http) as refused:
            assert refused.response.status_code == 429
            assert "256" in json.loads(await refused.response.aread())["detail"]
        await first.aclose()
        while True:
            async with listening(http) as again:
                if again.response.status_code == 200:
                    assert await again.next() is not None
                    break
            await asyncio.sleep(0.1)


async def test_streams_end_with_the_server() -> None:
    with server(f"{ENVIRONMENTS}:Plain", runtime="local") as found:
        async with api_for(found.url) as api, listening(api.http) as stream, asyncio.timeout(LIMIT_S):
            assert await stream.next() is not None
            found.signal(signal.SIGTERM)
            while await stream.next() is not None:
                pass  # a stream that breaks off raises
        assert found.wait() == 0
        assert not found.events("request_failed") and "Traceback" not in found.everything


async def test_a_session_ended_from_the_console_is_gone(plain: ServerProcess) -> None:
    async with api_for(plain.url) as api:
        odd = api.other(**{"X-Session-ID": "a/b c%"})
        odd.sid = "a%2Fb%20c%25"  # as an address has it
        for each in (await api.create(), odd):
            if each is odd:
                assert (
                    await each.post("/create", {"env_name": "scripted", "task_spec": {}})
                ).status_code == 200
            ended = await api.http.post(f"/console/api/sessions/{each.sid}/end")
            assert ended.status_code == 200 and ended.json()["fault"] is None
            gone = await each.post("/ping")
            assert gone.status_code == 410 and gone.json() == {"detail": "Session ended from the console"}
            assert (await api.http.post(f"/console/api/sessions/{each.sid}/end")).status_code == 410
        assert (await api.http.post("/console/api/sessions/never/end")).status_code == 404
        assert (await api.http.get(f"/console/api/sessions/{api.sid}/end")).status_code == 405


async def test_a_teardown_that_fails_is_reported(plain: ServerProcess) -> None:
    async with api_for(plain.url) as api:
        await api.create(teardown="ValueError")
        ended = await api.http.post(f"/console/api/sessions/{api.sid}/end")
        assert ended.status_code == 200 and "no such door" in ended.json()["fault"]
        assert (await api.post("/ping")).status_code == 410


async def test_faults_are_listed_with_what_the_log_calls_them(plain: ServerProcess) -> None:
    async with api_for(plain.url) as api:
        await api.create()
        assert (await api.call("do", how="Surrogate")).fault == "tool_error"
        reply = await api.call("do", how="ValueError")
        assert reply.fault == "tool_error"
        found = (await api.http.get("/console/api/faults")).json()
        await api.delete()
    newest = found[0]
    assert newest["session"] == api.sid and newest["environment"] == "Scripted" and newest["tool"] == "do"
    assert newest["fault"] == "tool_error" and newest["message"] == "ValueError: no such door"
    assert newest["id"] == json.loads(reply.events[-2].data)["id"]
    await until(lambda: any(line["id"] == newest["id"] for line in plain.events("fault")))


def test_without_a_journal_it_says_how_to_have_one(plain: ServerProcess) -> None:
    for path in ("trajectories", "trajectories/1", "runs", "runs/series?run=x", "tasks", "evaluations"):
        answer = get(plain, path)
        assert answer.status_code == 409, path
        assert answer.headers["x-orsay-code"] == "journal_off"
        assert "ORSAY_JOURNAL=auto" in answer.json()["detail"]
    assert httpx.post(f"{plain.url}/console/api/evaluations", json={}).status_code == 409


# who may see it


@pytest.mark.parametrize(
    "path", ["/console", "/console/", "/console/live", "/console/trajectories/7", "/console/icon.svg"]
)
def test_the_page_loads_without_a_key_and_the_api_does_not(locked: ServerProcess, path: str) -> None:
    page = httpx.get(locked.url + path)
    assert page.status_code == 200
    assert httpx.get(locked.url + path, headers={"X-API-Key": "wrong"}).status_code == 200


def test_the_api_wants_a_key(locked: ServerProcess) -> None:
    for path in ("server", "environments", "live", "faults", "trajectories", "trajectories/1", "nothing"):
        assert get(locked, path).status_code == 401, path
        assert get(locked, path, **{"X-API-Key": "wrong"}).status_code == 401, path
    assert httpx.post(f"{locked.url}/console/api/sessions/x/end").status_code == 401
    assert get(locked, "server", **ALICE).json()["keys"] is True
    assert get(locked, "server", Authorization=f"Bearer {KEYS[1]}").status_code == 200


@pytest.mark.parametrize("action", ["create", "call", "delete", "ping", "cancel", "create_session"])
def test_the_open_page_opens_no_endpoint_of_an_environment(locked: ServerProcess, action: str) -> None:
    body = {"env_name": "scripted", "task_spec": {}}
    headers = {"X-Session-ID": "a-stranger"}
    answer = httpx.post(f"{locked.url}/console/{action}", json=body, headers=headers)
    assert answer.status_code == 405
    assert get(locked, "environments", **ALICE).json()[0]["sessions"] == 0


async def test_a_key_sees_its_own_sessions_and_faults_only(locked: ServerProcess) -> None:
    async with (
        api_for(locked.url, **ALICE) as alice,
        api_for(locked.url, **BOB) as bob,
        listening(alice.http) as hers,
        listening(bob.http) as his,
        asyncio.timeout(LIMIT_S),
    ):
        await alice.create()
        assert (await alice.call("do", how="ValueError")).fault == "tool_error"
        seen = await hers.until(lambda snapshot: snapshot["total"] == 1)
        assert [each["sid"] for each in seen["list"]] == [alice.sid]
        assert seen["list"][0]["owner"].startswith("key-") and KEYS[0] not in json.dumps(seen)
        await bob.create()
        other = await his.until(lambda snapshot: snapshot["total"] == 1)
        assert [each["sid"] for each in other["list"]] == [bob.sid]
        for http, sessions in ((alice.http, 1), (bob.http, 1)):
            (found,) = (await http.get("/console/api/environments")).json()
            assert found["sessions"] == sessions
        (fault,) = (await alice.http.get("/console/api/faults")).json()
        assert "no such door" not in fault["message"] and fault["id"] in fault["message"]
        assert (await bob.http.get("/console/api/faults")).json() == []
        refused = await bob.http.post(f"/console/api/sessions/{alice.sid}/end")
        assert refused.status_code == 404 and await alice.ping() == 200
        await alice.delete()
        await bob.delete()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "10.evil.example", "127.0.0.1.evil.example"]
)
def test_without_keys_no_other_name_leads_to_the_api(plain: ServerProcess, host: str) -> None:
    status, headers, body = raw_get(plain.url, "/console/api/server", Host=host)
    assert status == 403 and "ORSAY_API_KEYS" in json.loads(body)["detail"]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.9", "[::1]:8080", "LOCALHOST", "10.0.0.7:8080"])
def test_every_name_of_this_machine_leads_to_the_api(plain: ServerProcess, host: str) -> None:
    assert raw_get(plain.url, "/console/api/server", Host=host)[0] == 200


def test_without_keys_pages_of_other_machines_are_refused(plain: ServerProcess) -> None:
    assert get(plain, "server", Origin="http://evil.example").status_code == 403
    assert get(plain, "server", Origin="http://localhost:5173").status_code == 200


def test_with_keys_a_server_may_have_any_name(locked: ServerProcess) -> None:
    assert raw_get(locked.url, "/console/api/server", Host="train.example", **ALICE)[0] == 200


def test_every_answer_carries_strict_headers(plain: ServerProcess, locked: ServerProcess) -> None:
    answers = [
        httpx.get(f"{plain.url}/console"),
        httpx.get(f"{plain.url}/console/assets/nothing.js"),
        httpx.get(f"{plain.url}/console/scheme.js"),
        get(plain, "server"),
        get(plain, "nothing"),
        get(plain, "runs"),
        get(locked, "server"),
        get(locked, "runs", **ALICE),
        httpx.post(f"{plain.url}/console"),
        httpx.post(f"{plain.url}/console/api/sessions/none/end"),
    ]
    assert {answer.status_code for answer in answers} == {200, 401, 404, 405, 409}
    for answer in answers:
        for name, value in GUARDS.items():
            assert answer.headers[name] == value, answer.url
        policy = answer.headers["content-security-policy"].split("; ")
        assert set(POLICY) <= set(policy), answer.url
        assert "'unsafe" not in answer.headers["content-security-policy"]
        assert "set-cookie" not in answer.headers
    assert "content-security-policy" not in httpx.get(f"{plain.url}/health").headers


def test_large_answers_are_compressed_for_who_takes_that(plain: ServerProcess) -> None:
    path = "/console/api/environments"
    _, whole_headers, whole = raw_get(plain.url, path)
    _, packed_headers, packed = raw_get(plain.url, path, **{"Accept-Encoding": "br, gzip;q=0.5"})
    _, refused_headers, _ = raw_get(plain.url, path, **{"Accept-Encoding": "gzip;q=0"})
    assert packed_headers["content-encoding"] == "gzip" and len(packed) < len(whole)
    assert json.loads(gzip.decompress(packed))[0]["tools"] == json.loads(whole)[0]["tools"]
    assert "content-encoding" not in whole_headers and "content-encoding" not in refused_headers
    assert whole_headers["vary"] == "accept-encoding" and whole_headers["cache-control"] == "no-store"


def test_an_unknown_path_of_the_api_is_no_page(plain: ServerProcess) -> None:
    for path in ("nothing", "", "trajectories/x", "sessions//end", "server/more"):
        answer = get(plain, path)
        assert answer.status_code == 404 and answer.json()["detail"].startswith("the console's API has no")
    assert httpx.get(f"{plain.url}/consoles").status_code == 404


def test_the_console_can_be_switched_off() -> None:
    with server(f"{ENVIRONMENTS}:Plain", runtime="local", console="off") as found:
        for path in ("/console", "/console/api/server", "/console/icon.svg"):
            assert httpx.get(found.url + path).status_code == 404
        paths = httpx.get(f"{found.url}/openapi.json").json()["paths"]
        assert not [path for path in paths if "console" in path]


def test_a_server_that_lets_anyone_in_has_no_console_unless_configured() -> None:
    for console, status in (("auto", 404), ("on", 200)):
        anyone: dict[str, Any] = {"host": "0.0.0.0", "allow_anonymous": True}
        with server(f"{ENVIRONMENTS}:Plain", runtime="local", console=console, **anyone) as found:
            local = found.url.replace("0.0.0.0", "127.0.0.1")
            assert httpx.get(f"{local}/console/api/server").status_code == status
            assert httpx.get(f"{local}/console").status_code == status


async def test_an_environment_called_console_keeps_its_endpoints(tmp_path: Path) -> None:
    file = tmp_path / "orsay.toml"
    table = f'[environments.one]\nclass = "{ENVIRONMENTS}:Plain"\nserve = {{ plain = "Console" }}\n'
    file.write_text(f'runtime = "local"\n{table}')
    process = ServerProcess(["--port", "0", "--config", str(file)], {})
    try:
        process.wait_for_url()
        async with api_for(process.url) as api:
            assert (await api.http.get("/console/tools")).json()["tools"][0]["name"] == "echo"
            assert (await api.http.post("/console/num_tasks", json={"split": "train"})).status_code == 200
            await api.create("console")
            body = {"name": "echo", "input": {"text": "hi"}}
            assert (await api.post("/console/call", body)).status_code == 200
            page = await api.http.get("/console/trajectories")
            assert page.headers["content-type"].startswith("text/html")
    finally:
        process.end()
