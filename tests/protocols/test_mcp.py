from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ImageContent, InitializeResult, TextContent

from ..support.server_process import ServerProcess, children, server
from ..support.waiting import until
from .conftest import TARGETS

pytestmark = pytest.mark.process

ACCEPT = {"Accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    },
}


def ended(served: ServerProcess, sid: str) -> list[dict[str, Any]]:
    return [line for line in served.events("session_ended") if line["session"] == sid]


class Connected:
    """The released client in a session that has begun."""

    def __init__(self, session: ClientSession, began: InitializeResult, sid: str) -> None:
        self.session = session
        self.instructions = began.instructions or ""
        self.name = began.serverInfo.name
        self.sid = sid

    async def call(self, name: str, **arguments: Any) -> tuple[str, dict[str, Any], bool]:
        """Text, the value of ``orsay``, and whether it was an error."""
        result = await self.session.call_tool(name, arguments)
        text = "".join(block.text for block in result.content if isinstance(block, TextContent))
        assert result.meta is not None
        return text, result.meta["orsay"], bool(result.isError)


@asynccontextmanager
async def connected(url: str, **headers: str) -> AsyncIterator[Connected]:
    async with (
        httpx.AsyncClient(headers=headers, timeout=30) as http,
        streamable_http_client(url, http_client=http) as (reading, writing, sid),
        ClientSession(reading, writing) as session,
    ):
        began = await session.initialize()
        yield Connected(session, began, sid() or "")


async def play_guess(url: str, **headers: str) -> list[float]:
    """Rewards, by halving the range until the episode has finished."""
    rewards = []
    async with connected(url, **headers) as client:
        low, high = map(int, re.findall(r"from (\d+) to (\d+)", client.instructions)[0])
        finished = False
        while not finished:
            number = (low + high) // 2
            text, reported, _ = await client.call("guess", number=number)
            rewards.append(reported["reward"])
            finished = reported["finished"]
            low, high = (number + 1, high) if "higher" in text else (low, number - 1)
    return rewards


def fault_in(error: McpError) -> dict[str, Any]:
    assert isinstance(error.error.data, dict)
    return error.error.data


async def refusal(url: str) -> McpError | None:
    """Why a session cannot begin; None when it can."""
    async with (
        streamable_http_client(url) as (reading, writing, _),
        ClientSession(reading, writing) as session,
    ):
        try:
            await session.initialize()
        except McpError as exc:
            return exc
    return None


async def test_the_released_client_plays_guess_to_the_end(served_on: ServerProcess) -> None:
    rewards = await play_guess(f"{served_on.url}/mcp?split=train&index=4")
    assert rewards[-1] == 1.0 and 1.0 < sum(rewards) <= 1.1 + 1e-9


async def test_tools_are_listed_with_their_whole_schemas(served: ServerProcess) -> None:
    async with connected(f"{served.url}/mcp/scripted") as client:
        assert client.name == "Scripted"
        tools = {tool.name: tool for tool in (await client.session.list_tools()).tools}
    assert set(tools) == {"fail", "look", "say", "submit", "vanish", "wait"}
    properties = tools["say"].inputSchema["properties"]
    assert properties["text"]["description"] == "What to say."
    assert properties["times"]["default"] == 1
    assert tools["look"].inputSchema["type"] == "object"
    assert tools["submit"].inputSchema["required"] == ["answer"]


async def test_the_prompt_is_in_the_instructions_and_a_prompt(served: ServerProcess) -> None:
    async with connected(f"{served.url}/scripted/mcp?split=test&index=0") as client:
        assert client.instructions.startswith("This is task four")
        (prompt,) = (await client.session.list_prompts()).prompts
        (message,) = (await client.session.get_prompt(prompt.name)).messages
        assert message.role == "user" and isinstance(message.content, TextContent)
        assert message.content.text == client.instructions


async def test_reward_and_end_are_beside_the_content_not_in_it(served: ServerProcess) -> None:
    async with connected(f"{served.url}/mcp/scripted?index=0") as client:
        text, reported, failed = await client.call("say", text="hi", times=2)
        assert (text, failed) == ("hihi", False)
        assert reported == {"reward": 0.5, "finished": False, "metadata": {"times": 2}}
        text, reported, _ = await client.call("submit", answer="42")
        assert (reported["reward"], reported["finished"]) == (1.0, True)
        text, reported, failed = await client.call("say", text="hi")
        assert failed and reported == {"reason": "episode_finished", "finished": True}


async def test_images_are_content(served: ServerProcess) -> None:
    async with connected(f"{served.url}/mcp/scripted") as client:
        text, image = (await client.session.call_tool("look", {})).content
        assert isinstance(text, TextContent) and text.text == "You see:"
        assert isinstance(image, ImageContent) and image.mimeType == "image/png"


async def test_what_a_model_can_fix_is_a_result_and_a_fault_an_error(served: ServerProcess) -> None:
    async with connected(f"{served.url}/mcp/scripted") as client:
        text, reported, failed = await client.call("say", words="hi")
        assert failed and reported["reason"] == "input_validation" and "text" in text
        with pytest.raises(McpError) as fault:
            await client.session.call_tool("fail", {})
        assert "tool_error: RuntimeError: out of paper" in str(fault.value)
        reported = fault_in(fault.value)
        assert reported["class"] == "tool_error"
        await until(lambda: reported["id"] in "".join(served.log))
        assert (await client.call("say", text="still here"))[0] == "still here"


async def test_the_session_ends_with_its_client(served: ServerProcess) -> None:
    async with connected(f"{served.url}/mcp/scripted") as client:
        sid = client.sid
        assert not ended(served, sid)
        async with httpx.AsyncClient(base_url=served.url, headers={"X-Session-ID": sid}) as http:
            assert (await http.get("/prompt")).status_code == 200  # the very session, by ORS
    await until(lambda: ended(served, sid))
    assert "Error in standalone" not in "".join(served.log)


async def test_two_clients_at_once_play_apart(served: ServerProcess) -> None:
    url = f"{served.url}/mcp/scripted"
    async with connected(f"{url}?index=0") as one:
        assert "task one" in one.instructions
        two = asyncio.create_task(play_guess(f"{served.url}/mcp/guessenvironment?seed=5"))
        waiting = asyncio.create_task(one.call("wait", seconds=0.5))
        assert (await two)[-1] == 1.0
        assert (await waiting)[0] == "done"


async def test_calls_of_one_session_run_while_another_is_asked(served: ServerProcess) -> None:
    async with connected(f"{served.url}/mcp/scripted") as client:
        slow = asyncio.create_task(client.call("wait", seconds=60))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await asyncio.shield(slow)
        assert (await client.session.list_tools()).tools
        slow.cancel()
        sid = client.sid
    await until(lambda: ended(served, sid))
    assert ended(served, sid)[0]["age_s"] < 30


async def test_a_session_that_cannot_begin_says_why(served: ServerProcess) -> None:
    for path, says in (
        ("/mcp/scripted?split=nowhere", "nowhere"),
        ("/mcp/scripted?index=99", "99"),
        ("/mcp/scripted?index=first", "index: Input should be a valid integer"),
        ("/mcp/nothing", "unknown environment 'nothing'"),
        ("/mcp/broken", "setup_error"),
    ):
        assert says in str(await refusal(served.url + path))


async def test_a_key_is_needed_and_a_session_belongs_to_it() -> None:
    with server(*TARGETS, also="mcp", api_keys=["sesame", "other"]) as locked:
        async with httpx.AsyncClient(base_url=locked.url, headers=ACCEPT) as http:
            assert (await http.post("/mcp", json=INITIALIZE)).status_code == 401
            began = await http.post("/mcp", json=INITIALIZE, headers={"X-API-Key": "other"})
            assert began.status_code == 200
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            session = {"Mcp-Session-Id": began.headers["Mcp-Session-Id"]}
            for key, status in (("sesame", 404), ("other", 200)):
                answer = await http.post("/mcp", json=ping, headers={**session, "X-API-Key": key})
                assert answer.status_code == status
        rewards = await play_guess(f"{locked.url}/mcp", Authorization="Bearer sesame")
        assert rewards[-1] == 1.0


async def test_a_lost_worker_is_a_fault_until_the_client_begins_anew() -> None:
    with server(*TARGETS, also="mcp", workers=1) as own:
        async with connected(f"{own.url}/mcp/scripted") as client:
            (worker,) = children(own.pid)
            os.kill(worker, signal.SIGKILL)
            await until(lambda: ended(own, client.sid))
            with pytest.raises(McpError) as fault:
                await client.call("say", text="hi")
            assert fault_in(fault.value)["class"] == "worker_lost"
            assert fault_in(fault.value)["retryable"] is True
        async with asyncio.timeout(30):
            while refused := await refusal(f"{own.url}/mcp/scripted"):  # the next worker starts
                assert fault_in(refused)["retryable"], refused
        assert (await play_guess(f"{own.url}/mcp"))[-1] == 1.0


async def test_limits_hold_and_an_idle_session_expires_and_is_forgotten() -> None:
    with server(*TARGETS, also="mcp", max_sessions="1", idle_limit_s="1", gone_memory_s="1") as own:
        async with httpx.AsyncClient(base_url=own.url, headers=ACCEPT) as http:
            began = await http.post("/mcp", json=INITIALIZE)
            full = (await http.post("/mcp", json=INITIALIZE)).json()
            assert full["id"] == 1 and full["error"]["data"]["class"] == "overloaded"
            await until(lambda: own.events("session_ended"))
            session = {"Mcp-Session-Id": began.headers["Mcp-Session-Id"]}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            async with asyncio.timeout(20):
                while (await http.post("/mcp", json=ping, headers=session)).status_code != 404:
                    await asyncio.sleep(0.1)
        assert (await play_guess(f"{own.url}/mcp"))[-1] == 1.0


async def test_requests_outside_a_session_are_refused(served: ServerProcess) -> None:
    async with httpx.AsyncClient(base_url=served.url, headers=ACCEPT) as http:
        tools = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await http.post("/mcp", json=tools)).status_code == 400
        assert (await http.post("/mcp", content="{")).status_code == 400
        assert (await http.get("/mcp")).status_code == 400
        unknown = {"Mcp-Session-Id": "nobody"}
        assert (await http.get("/mcp", headers=unknown)).status_code == 404
        assert (await http.delete("/mcp", headers=unknown)).status_code == 404
        assert (await http.put("/mcp")).headers["Allow"] == "POST, GET, DELETE"
        page = {"Origin": "http://evil.example"}
        assert (await http.post("/mcp", json=INITIALIZE, headers=page)).status_code == 403
        paths = (await http.get("/openapi.json")).json()["paths"]
        assert set(paths["/{env}/mcp"]) == {"post", "get", "delete"}


async def test_a_beginning_that_is_none_leaves_no_session() -> None:
    with server(*TARGETS, also="mcp") as own:
        async with httpx.AsyncClient(base_url=own.url, headers=ACCEPT) as http:
            assert (await http.post("/mcp", content='{"method": "initialize"}')).status_code == 400
        await until(lambda: own.events("session_ended"))


async def test_a_running_call_is_answered_before_the_server_stops(tmp_path: Path) -> None:
    began = tmp_path / "began"
    with server(*TARGETS, also="mcp") as own:
        async with connected(f"{own.url}/mcp/scripted") as client:
            await client.session.list_tools()  # the client does so after its first call
            slow = asyncio.create_task(client.call("wait", seconds=1, began=str(began)))
            await until(began.exists)
            own.signal(signal.SIGTERM)
            assert (await slow)[0] == "done"
        assert await asyncio.to_thread(own.wait) == 0


async def test_secrets_reach_the_environment(served: ServerProcess) -> None:
    secret = {"X-Secrets": "eyJ3b3JkIjogeyJ2YWx1ZSI6ICJzd29yZGZpc2gifX0="}
    async with connected(f"{served.url}/mcp/scripted", **secret) as client:
        assert "secret swordfish" in client.instructions
