from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from ..interop.venvs import OPENENV, python_for
from ..support.server_process import ServerProcess, children, server
from ..support.waiting import until
from .conftest import TARGETS
from .openenv_clients import killed_at_the_end, openenv_client

pytestmark = pytest.mark.process

NEWEST = OPENENV[0]
SAY = {"type": "call_tool", "tool_name": "say", "arguments": {"text": "hi", "times": 2}}


def ended(served: ServerProcess, sid: str) -> list[dict[str, Any]]:
    return [line for line in served.events("session_ended") if line["session"] == sid]


class Socket:
    """A WebSocket by hand, for what released clients never do."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def ask(self, kind: str, **data: Any) -> dict[str, Any]:
        return await self.raw(json.dumps({"type": kind, "data": data}))

    async def raw(self, text: str) -> dict[str, Any]:
        await self.connection.send(text)
        async with asyncio.timeout(20):
            answer: dict[str, Any] = json.loads(await self.connection.recv())
        return answer

    async def reset(self, **task: Any) -> str:
        """The session's id."""
        answer = await self.ask("reset", **task)
        assert answer["type"] == "observation", answer
        return str(answer["data"]["metadata"]["session_id"])


@asynccontextmanager
async def socket(served: ServerProcess, path: str = "/scripted/ws", **headers: str) -> AsyncIterator[Socket]:
    url = served.url.replace("http", "ws") + path
    async with connect(url, additional_headers=headers, proxy=None) as connection:
        yield Socket(connection)


# released clients


@pytest.mark.venv
@pytest.mark.parametrize("release", OPENENV, ids="-".join)
def test_a_released_client_plays_guess_to_the_end(served_on: ServerProcess, release: tuple[str, str]) -> None:
    with openenv_client(release, "generic", served_on.url) as client:
        played = client.do("guess", split="train", index=4)
        assert played["done"] and played["rewards"][-1] == 1.0
        assert 1.0 < sum(played["rewards"]) <= 1.1 + 1e-9
        state = client.do("state")
        assert (state["split"], state["index"], state["done"]) == ("train", 4, True)
        assert state["step_count"] == len(played["rewards"])
        client.do("close")


@pytest.mark.venv
@pytest.mark.parametrize("release", OPENENV, ids="-".join)
def test_a_released_tool_client_plays_guess_by_tool_calls(
    served: ServerProcess, release: tuple[str, str]
) -> None:
    with openenv_client(release, "tools", f"{served.url}/guessenvironment") as client:
        client.do("connect")
        tools = client.do("list_tools")
        assert [tool["name"] for tool in tools] == ["guess"]
        assert tools[0]["input_schema"]["properties"]["number"]["type"] == "integer"
        played = client.do("guess", wrapped=True, seed=7)
        assert played["done"] and played["rewards"][-1] == 1.0
        client.do("close")


@pytest.mark.venv
async def test_the_session_of_a_tool_client_is_one_over_http_and_the_socket(served: ServerProcess) -> None:
    with openenv_client(NEWEST, "tools", f"{served.url}/scripted") as client:
        client.do("connect")
        reset = client.do("reset", split="test", index=0)
        assert "task four" in reset["observation"]["text"]
        assert client.do("call_tool", name="say", text="by HTTP") == "by HTTP"
        assert client.do("state")["step_count"] == 1
        step = client.do("call_action", tool_name="say", arguments={"text": "by socket"})
        assert step["observation"]["result"]["data"] == "by socket" and step["reward"] == 0.25
        error = client.ask("call_tool", name="fail")["error"]
        assert "tool_error" in error and "out of paper" in error
        assert "not a tool" in client.ask("call_tool", name="nope")["error"]
        sid = client.do("state")["episode_id"]
        client.do("close")
        await until(lambda: ended(served, sid))


@pytest.mark.venv
async def test_a_client_that_is_killed_takes_its_session_along(served: ServerProcess) -> None:
    with killed_at_the_end(NEWEST, "generic", f"{served.url}/scripted") as client:
        sid = client.do("reset", index=0)["observation"]["metadata"]["session_id"]
        assert not ended(served, sid)
    await until(lambda: ended(served, sid))


@pytest.mark.venv
def test_two_clients_at_once_play_apart(served: ServerProcess) -> None:
    with (
        openenv_client(NEWEST, "generic", f"{served.url}/scripted") as one,
        openenv_client(NEWEST, "generic", f"{served.url}/scripted") as two,
    ):
        assert "task one" in one.do("reset", index=0)["observation"]["text"]
        assert "task two" in two.do("reset", index=1)["observation"]["text"]
        one.do("step", action=SAY)
        assert one.do("state")["step_count"] == 1
        assert two.do("state")["step_count"] == 0


@pytest.mark.venv
def test_a_fault_is_an_error_and_no_reward(served: ServerProcess) -> None:
    with openenv_client(NEWEST, "generic", f"{served.url}/scripted") as client:
        client.do("reset")
        failed = client.ask("step", action={"type": "call_tool", "tool_name": "fail"})
        assert "tool_error: " in failed["error"] and "RuntimeError: out of paper" in failed["error"]
        assert "EXECUTION_ERROR" in failed["error"]
        assert client.do("step", action=SAY)["reward"] == 0.5  # the episode goes on


@pytest.mark.venv
def test_a_key_is_needed() -> None:
    with server(*TARGETS, also="openenv", api_keys=["sesame"]) as locked:
        with openenv_client(NEWEST, "generic", locked.url) as client:
            assert "401" in client.ask("reset")["error"]
        with openenv_client(NEWEST, "generic", locked.url, Authorization="Bearer sesame") as client:
            assert "whole number" in client.do("reset")["observation"]["text"]
        assert httpx.post(f"{locked.url}/reset").status_code == 401
        key = {"X-API-Key": "sesame"}
        assert httpx.post(f"{locked.url}/reset", headers=key).status_code == 200


@pytest.mark.venv
def test_the_validator_of_the_released_package_finds_nothing_wrong(served: ServerProcess) -> None:
    code = (
        "import json, sys; from openenv.cli._validation import validate_running_environment as look;"
        "print(json.dumps(look(sys.argv[1])))"
    )
    command = [str(python_for(*NEWEST)), "-c", code, f"{served.url}/scripted"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    report = json.loads(done.stdout)
    assert report["passed"] and report["mode"] == "simulation", report


# the socket


async def test_a_step_names_a_tool_in_either_way(served: ServerProcess) -> None:
    async with socket(served) as ws:
        await ws.reset(index=0)
        for action in (SAY, {"tool": "say", "arguments": {"text": "hi", "times": 2}}):
            data = (await ws.ask("step", **action))["data"]
            assert data["reward"] == 0.5 and data["done"] is False
            assert data["observation"]["text"] == "hi\nhi"
            assert data["metadata"] == data["observation"]["metadata"] == {"times": 2}


async def test_an_action_without_a_tool_is_refused_where_there_are_several(served: ServerProcess) -> None:
    async with socket(served) as ws:
        await ws.reset()
        answer = await ws.ask("step", text="hi")
        assert answer["type"] == "error" and answer["data"]["code"] == "VALIDATION_ERROR"
        assert "say" in answer["data"]["message"]


async def test_wrong_arguments_are_an_observation_that_says_so(served: ServerProcess) -> None:
    async with socket(served) as ws:
        await ws.reset()
        for tool, arguments, kind in (("say", {"words": 1}, "invalid_args"), ("nope", {}, "tool_not_found")):
            data = (await ws.ask("step", tool_name=tool, arguments=arguments))["data"]
            assert data["observation"]["error"]["error_type"] == kind
            assert data["reward"] is None and data["done"] is False


async def test_images_arrive_as_blocks(served: ServerProcess) -> None:
    async with socket(served) as ws:
        await ws.reset()
        observation = (await ws.ask("step", tool="look"))["data"]["observation"]
        assert [block["type"] for block in observation["blocks"]] == ["text", "image"]
        assert observation["blocks"][1]["mimeType"] == "image/png"
        assert observation["text"] == "You see:"


async def test_the_terminal_tool_is_listed_and_ends_the_episode(served: ServerProcess) -> None:
    async with socket(served) as ws:
        listed = (await ws.ask("step", type="list_tools"))["data"]["observation"]["tools"]
        assert {"look", "say", "submit"} < {tool["name"] for tool in listed}
        await ws.reset()
        data = (await ws.ask("step", tool="submit", arguments={"answer": "42"}))["data"]
        assert (data["reward"], data["done"]) == (1.0, True)
        late = (await ws.ask("step", **SAY))["data"]
        assert late["done"] is True and late["reward"] is None
        assert "finished" in late["observation"]["error"]["message"]


async def test_a_reset_ends_the_session_before_it(served: ServerProcess) -> None:
    async with socket(served) as ws:
        first = await ws.reset(index=0)
        second = await ws.reset(index=1)
        assert first != second
        await until(lambda: ended(served, first))
        assert not ended(served, second)
    await until(lambda: ended(served, second))


async def test_the_same_seed_is_the_same_task_and_no_seed_any(served: ServerProcess) -> None:
    async with socket(served, "/ws") as ws:

        async def index(**task: Any) -> int:
            return int((await ws.ask("reset", **task))["data"]["metadata"]["index"])

        assert await index(seed=123_456) == await index(seed=123_456) == 23_456
        assert len({await index() for _ in range(4)}) > 1


async def test_a_step_before_any_reset_plays_some_task(served: ServerProcess) -> None:
    async with socket(served) as ws:
        assert (await ws.ask("state"))["data"]["episode_id"] is None
        assert (await ws.ask("step", **SAY))["data"]["reward"] == 0.5


async def test_an_episode_id_comes_back_in_the_state(served: ServerProcess) -> None:
    async with socket(served) as ws:
        await ws.reset(episode_id="mine")
        assert (await ws.ask("state"))["data"]["episode_id"] == "mine"


async def test_secrets_reach_the_environment_from_the_handshake(served: ServerProcess) -> None:
    async with socket(served, **{"X-Secrets": "eyJ3b3JkIjogeyJ2YWx1ZSI6ICJzd29yZGZpc2gifX0="}) as ws:
        assert "secret swordfish" in (await ws.ask("reset", index=0))["data"]["observation"]["text"]


async def test_a_task_that_does_not_exist_is_refused(served: ServerProcess) -> None:
    async with socket(served) as ws:
        for task in ({"split": "nowhere"}, {"index": 99}, {"index": "first"}):
            answer = await ws.ask("reset", **task)
            assert answer["type"] == "error" and answer["data"]["code"] == "VALIDATION_ERROR", answer
        assert await ws.reset(index=2)


async def test_a_failed_setup_is_reported_and_leaves_no_session(served: ServerProcess) -> None:
    async with socket(served, "/broken/ws") as ws:
        data = (await ws.ask("reset"))["data"]
    assert data["code"] == "FACTORY_ERROR"
    assert data["fault"]["class"] == "setup_error" and "no database" in data["message"]
    await until(lambda: [x for x in served.events("session_ended") if x["environment"] == "Broken"])


async def test_what_is_no_message_is_answered_and_the_socket_lives_on(served: ServerProcess) -> None:
    async with socket(served) as ws:
        assert (await ws.raw("{"))["data"]["code"] == "INVALID_JSON"
        assert (await ws.raw("[1]"))["data"]["code"] == "INVALID_JSON"
        assert (await ws.ask("dance"))["data"]["code"] == "UNKNOWN_TYPE"
        assert (await ws.raw('{"type": "step", "data": 7}'))["data"]["code"] == "VALIDATION_ERROR"
        assert await ws.reset()


async def test_close_ends_the_session_and_the_connection(served: ServerProcess) -> None:
    async with socket(served) as ws:
        sid = await ws.reset()
        await ws.connection.send('{"type": "close"}')
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(20):
                await ws.connection.recv()
        await until(lambda: ended(served, sid))


async def test_a_call_that_runs_is_stopped_when_its_client_goes(
    served: ServerProcess, tmp_path: Path
) -> None:
    wait = {"tool": "wait", "arguments": {"seconds": 60, "began": str(tmp_path / "began")}}
    async with socket(served) as ws:
        sid = await ws.reset()
        await ws.connection.send(json.dumps({"type": "step", "data": wait}))
        await until((tmp_path / "began").exists)
        ws.connection.transport.abort()
    await until(lambda: ended(served, sid))
    assert ended(served, sid)[0]["age_s"] < 30


async def test_a_lost_worker_is_a_fault_and_the_next_reset_works() -> None:
    with server(*TARGETS, also="openenv", workers=1) as own:
        async with socket(own) as ws:
            await ws.reset()
            (worker,) = children(own.pid)
            os.kill(worker, signal.SIGKILL)
            data = (await ws.ask("step", **SAY))["data"]
            assert data["fault"]["class"] == "worker_lost" and data["fault"]["retryable"] is True
            async with asyncio.timeout(30):
                while (answer := await ws.ask("reset"))["type"] == "error":  # the next worker starts
                    assert answer["data"]["fault"]["retryable"], answer
                    await asyncio.sleep(0.1)
            assert (await ws.ask("step", **SAY))["data"]["reward"] == 0.5


async def test_limits_on_sessions_hold_and_idle_sessions_expire() -> None:
    with server(*TARGETS, also="openenv", max_sessions="1", idle_limit_s="1") as own:
        async with socket(own) as one, socket(own) as two:
            await one.reset()
            full = (await two.ask("reset"))["data"]
            assert full["code"] == "CAPACITY_REACHED" and full["fault"]["class"] == "overloaded"
            await until(lambda: own.events("session_ended"))
            gone = (await one.ask("step", **SAY))["data"]
            assert gone["code"] == "SESSION_ERROR" and "idle" in gone["message"]
            assert await two.reset()


async def test_a_server_that_stops_ends_sessions_and_sockets() -> None:
    with server(*TARGETS, also="openenv") as own:
        async with socket(own) as ws:
            sid = await ws.reset()
            own.signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed):
                async with asyncio.timeout(20):
                    await ws.connection.recv()
        assert await asyncio.to_thread(own.wait) == 0  # the log is complete then
        assert ended(own, sid)[0]["reason"] == "the server is shutting down"


async def test_sockets_lead_nowhere_on_other_paths_and_for_foreign_pages(served: ServerProcess) -> None:
    for path, status in (("/nowhere/ws", 404), ("/scripted/prompt", 404), ("/ws?session_id=x", 404)):
        with pytest.raises(InvalidStatus) as refused:
            async with socket(served, path):
                pass
        assert refused.value.response.status_code == status
    with pytest.raises(InvalidStatus) as refused:
        async with socket(served, Origin="http://evil.example"):
            pass
    assert refused.value.response.status_code == 403
    async with socket(served, Origin="http://localhost:3000") as ws:
        assert await ws.reset()


async def test_too_many_messages_at_once_end_the_connection(served: ServerProcess) -> None:
    async with socket(served) as ws:
        sid = await ws.reset()
        wait = json.dumps({"type": "step", "data": {"tool": "wait", "arguments": {"seconds": 60}}})
        for _ in range(100):
            await ws.connection.send(wait)
        with pytest.raises(ConnectionClosed) as closed:
            async with asyncio.timeout(20):
                await ws.connection.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        await until(lambda: ended(served, sid))


# HTTP and JSON-RPC


async def test_over_http_a_reset_alone_leaves_nothing_open(served: ServerProcess) -> None:
    async with httpx.AsyncClient(base_url=f"{served.url}/scripted") as http:
        answer = (await http.post("/reset", json={"index": 1})).json()
        assert "task two" in answer["observation"]["text"]
        await until(lambda: ended(served, answer["metadata"]["session_id"]))
        step = (await http.post("/step", json={"action": SAY, "index": 1})).json()
        assert (step["reward"], step["done"]) == (0.5, False)
        assert (await http.get("/state")).json()["step_count"] == 0


async def test_over_http_a_session_of_ones_own_stays_and_is_an_ors_session(served: ServerProcess) -> None:
    mine = {"X-Session-ID": "openenv-over-http"}
    async with httpx.AsyncClient(base_url=f"{served.url}/guessenvironment", headers=mine) as http:
        text = (await http.post("/reset", json={"split": "train", "index": 3})).json()["observation"]["text"]
        low, high = map(int, re.findall(r"from (\d+) to (\d+)", text)[0])
        done = False
        while not done:
            number = (low + high) // 2
            step = (await http.post("/step", json={"action": {"number": number}})).json()
            done = step["done"]
            higher = "higher" in step["observation"]["text"]
            low, high = (number + 1, high) if higher else (low, number - 1)
        assert step["reward"] == 1.0
        assert (await http.get("/state")).json()["done"] is True
        prompt = (await http.get("/prompt")).json()[0]["text"]  # the very session, by ORS
        assert prompt.startswith(text.split("You have")[0])
        again = await http.post("/reset", json={"split": "train", "index": 3})
        assert again.json()["metadata"]["session_id"] == mine["X-Session-ID"]
        assert (await http.get("/state")).json()["step_count"] == 0
        assert (await http.post("/delete")).status_code == 200
        assert (await http.get("/state")).status_code == 410


async def test_over_http_a_request_id_is_run_once(served: ServerProcess) -> None:
    async with httpx.AsyncClient(base_url=f"{served.url}/scripted", headers={"X-Session-ID": "once"}) as http:
        await http.post("/reset", json={})
        for _ in range(2):
            assert (await http.post("/step", json={"action": SAY, "request_id": "a"})).json()["reward"] == 0.5
        assert (await http.get("/state")).json()["step_count"] == 1
        await http.post("/delete")


async def test_over_http_a_fault_has_a_status_and_its_class(served: ServerProcess) -> None:
    async with httpx.AsyncClient(base_url=f"{served.url}/scripted") as http:
        answer = await http.post("/step", json={"action": {"tool": "fail"}})
        assert answer.status_code == 500 and answer.headers["X-Orsay-Fault"] == "tool_error"
        assert (await http.post("/step", json={"action": {"text": "hi"}})).status_code == 400
        assert (await http.post("/step", json={"move": 1})).status_code == 422
        assert (await http.post("/reset", json=[1])).status_code == 400
        wrong = await http.get("/reset")
        assert wrong.status_code == 405 and wrong.headers["Allow"] == "POST"


async def test_an_environment_describes_itself(served: ServerProcess) -> None:
    async with httpx.AsyncClient(base_url=served.url) as http:
        assert (await http.get("/metadata")).json()["name"] == "GuessEnvironment"
        assert (await http.get("/Scripted/metadata")).json()["description"] == "Does what its calls say."
        schema = (await http.get("/scripted/schema")).json()
        assert "say" in schema["action"]["properties"]["tool_name"]["enum"]
        assert {"/reset", "/step", "/state"} < set((await http.get("/scripted/openapi.json")).json()["paths"])
        assert (await http.get("/scripted/health")).json() == {"status": "healthy"}
        assert (await http.get("/health")).json() == {"status": "ok"}
        assert (await http.get("/nowhere/metadata")).status_code == 404
        paths = (await http.get("/openapi.json")).json()["paths"]
        assert {"/{env}/reset", "/{env}/step", "/{env}/state", "/{env}/ws"} <= set(paths)


async def test_json_rpc_answers_with_errors_of_its_own(served: ServerProcess) -> None:
    async with httpx.AsyncClient(base_url=f"{served.url}/scripted") as http:

        async def rpc(method: str, **params: Any) -> dict[str, Any]:
            body = {"jsonrpc": "2.0", "id": 5, "method": method, "params": params}
            answer: dict[str, Any] = (await http.post("/mcp", json=body)).json()
            assert answer["id"] == 5
            return answer

        assert (await rpc("tools/call", name="say", arguments={"text": "x"}))["result"]["data"] == "x"
        failed = (await rpc("tools/call", name="fail"))["error"]
        assert failed["data"]["class"] == "tool_error"
        assert (await rpc("tools/call"))["error"]["code"] == -32602
        assert (await rpc("dance"))["error"]["code"] == -32601
        assert "Unknown" in (await rpc("tools/list", session_id="x"))["error"]["message"]
        assert "required" in (await rpc("openenv/session/close"))["error"]["message"]
        assert (await http.post("/mcp", content="{")).json()["error"]["code"] == -32700
        assert (await http.post("/mcp", json={"a": 1})).json()["error"]["code"] == -32600


async def test_json_rpc_goes_over_sockets_too(served: ServerProcess) -> None:
    call: dict[str, Any] = {"jsonrpc": "2.0", "id": "a", "method": "tools/call"}
    call = {**call, "params": {"name": "say", "arguments": {"text": "x"}}}
    async with socket(served) as ws:
        sid = await ws.reset()
        answer = (await ws.ask("mcp", **call))["data"]
        assert answer["result"]["data"] == "x" and answer["result"]["reward"] == 0.25
        create = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create"}
        assert (await ws.ask("mcp", **create))["data"]["result"]["session_id"] == sid
    async with socket(served, "/scripted/mcp") as ws:
        assert (await ws.raw(json.dumps(call)))["result"]["data"] == "x"


@pytest.mark.parametrize("pause_s", [0.0, 0.5])
async def test_a_step_while_the_server_stops_does_not_keep_it(tmp_path: Path, pause_s: float) -> None:
    with server(*TARGETS, also="openenv", journal=str(tmp_path / "journal.db"), shutdown_grace_s=2) as own:
        async with socket(own, "/ws") as ws:
            await ws.reset(split="train", index=4)
            own.signal(signal.SIGTERM)
            await asyncio.sleep(pause_s)
            step = {"type": "call_tool", "tool_name": "guess", "arguments": {"number": 50}}
            with suppress(ConnectionClosed):
                await ws.ask("step", **step)
        assert await asyncio.to_thread(own.wait, 20) == 0
