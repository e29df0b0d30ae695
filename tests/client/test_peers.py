"""The client against released servers and our own, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from orsay_client import (
    AsyncClient,
    BadRequest,
    Client,
    ConnectionLost,
    Retry,
    ServerError,
    SessionLost,
    SetupError,
    ToolError,
    ToolRefused,
    Unsupported,
)
from orsay_protocol import GroupCandidate, Message, TextBlock

from tests.support.servers import running

from ..interop.venvs import python_for
from ..support.cut_proxy import CutProxy
from ..support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.conformance("C3")]

PEERS = (
    ("openreward", "0.1.100"),
    ("openreward", "0.1.140"),
    ("openreward", "0.1.167"),
    ("ors-sdk", "0.1.0"),
)
OURS = (("orsay", "local"), ("orsay", "process"))
SERVERS = Path(__file__).parent / "servers"
QUICK = Retry(first_delay_s=0.05, max_delay_s=0.2)


class Peer:
    """A server and what it is able to do."""

    def __init__(self, package: str, version: str, url: str) -> None:
        self.url = url
        self.ours = package == "orsay"
        self.new = self.ours or version == "0.1.167"
        self.terminal = self.new or version == "0.1.140"
        self.reads_secrets_in_body = package in ("ors-sdk", "orsay")
        self.reads_secrets_in_header = package != "ors-sdk"


def command(package: str, version: str) -> list[str]:
    if package != "orsay":
        return [str(python_for(package, version)), str(SERVERS / "serve.py"), package]
    classes = [f"{SERVERS / 'peer_env.py'}:{name}" for name in ("Peer", "Second")]
    return [sys.executable, "-m", "orsay", "serve", *classes, "--port", "0", "--runtime", version]


@pytest.fixture(
    scope="module",
    params=[*(pytest.param(peer, marks=pytest.mark.venv) for peer in PEERS), *OURS],
    ids=lambda peer: "-".join(peer),
)
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    package, version = request.param
    with running(command(package, version)) as server:
        yield Peer(package, version, server.url)


async def test_discovery(peer: Peer) -> None:
    async with AsyncClient(peer.url) as client:
        assert await client.environments() == ["peer", "second"]
        for environment in (client.environment(), client.environment("peer"), client.environment("PEER")):
            assert [split.name for split in await environment.splits()] == ["train", "test"]
            tools = {spec.name for spec in await environment.tools()}
            assert tools == {"add", "boom", "die", "echo", "slow", "spaces", "whoami"}
            terminal = await environment.terminal_tool()
            assert (terminal.arg if terminal else None) == ("text" if peer.terminal else None)
            assert await environment.supports_score_group() == peer.new
        assert [spec.name for spec in await client.environment("second").tools()] == ["nothing"]


async def test_tasks_one_by_one_in_ranges_and_in_pages(peer: Peer) -> None:
    async with AsyncClient(peer.url) as client:
        tasks = client.environment("peer").tasks("train")
        assert await tasks.count() == 450
        assert (await tasks.get(7)).spec == {"id": 7}
        assert (await tasks.get(-1)).spec == {"id": 449}
        found = await tasks.range(-3, None)
        assert [(task.index, task.spec["id"]) for task in found] == [(447, 447), (448, 448), (449, 449)]
        assert [task.spec["id"] async for task in tasks] == list(range(450))
        assert [task.index async for task in client.environment().tasks("test")] == [0, 1, 2]


async def test_an_episode_collects_rewards_until_it_is_finished(peer: Peer) -> None:
    async with AsyncClient(peer.url) as client:
        environment = client.environment()
        task = await environment.tasks("train").get(5)
        async with environment.session(task, run_labels={"step": 1}) as session:
            assert await session.prompt() == [TextBlock(text="task 5")]
            assert await session.messages() == [Message(role="user", blocks=[TextBlock(text="task 5")])]
            assert await session.messages("openai") == [{"role": "user", "content": "task 5"}]
            assert (await session.call("add", {"number": 1})).blocks == [TextBlock(text="1")]
            before = session.finished
            output = await session.call("add", {"number": 2})
            assert (before, output.finished, session.finished) == (False, True, True)
            assert session.rewards == (1.0, 2.0) and session.reward == 2.0


async def test_tools_in_the_shapes_of_providers(peer: Peer) -> None:
    async with AsyncClient(peer.url) as client, client.environment("peer").session(task_spec={}) as session:
        by_name = {spec["name"]: spec for spec in await session.tools("openai")}
        assert by_name["echo"] == {
            "type": "function",
            "name": "echo",
            "description": "Echo.",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        }
        assert by_name["boom"]["parameters"] is None
        anthropic = {spec["name"]: spec for spec in await session.tools("anthropic")}
        assert anthropic["boom"]["input_schema"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("name", "input", "reason"),
    [
        ("nope", {}, "not_found"),
        ("add", {"number": "many"}, "input_validation"),
        ("add", {"number": float("nan")}, "input_validation"),
        ("echo", {"text": "\ud800"}, "input_validation"),
        ("echo", ["text"], "input_validation"),
    ],
)
async def test_a_call_that_a_model_got_wrong_is_an_answer(
    peer: Peer, name: str, input: dict[str, object], reason: str
) -> None:
    async with AsyncClient(peer.url) as client, client.environment().session(task_spec={}) as session:
        with pytest.raises(ToolRefused) as refused:
            await session.call(name, input)
        assert refused.value.reason == reason
        await session.call("echo", {"text": "still here"})


async def test_a_tool_that_raises_is_a_fault_and_the_session_goes_on(peer: Peer) -> None:
    async with AsyncClient(peer.url) as client, client.environment().session(task_spec={}) as session:
        with pytest.raises(ToolError, match="boom, it said"):
            await session.call("boom")
        await session.call("echo", {"text": "still here"})


@pytest.mark.parametrize(
    "text", ["", "  \n\t x", "\u2028\u0085\u00a0", "\r\n\r", "data: x", "😀" * 3000, "x" * 300_000]
)
async def test_texts_arrive_as_they_were(peer: Peer, text: str) -> None:
    async with AsyncClient(peer.url) as client, client.environment().session(task_spec={}) as session:
        assert (await session.call("echo", {"text": text})).blocks == [TextBlock(text=text)]


async def test_twenty_thousand_spaces_arrive_as_twenty_thousand(peer: Peer) -> None:
    async with AsyncClient(peer.url) as client, client.environment().session(task_spec={}) as session:
        assert (await session.call("spaces", {"number": 20000})).blocks == [TextBlock(text=" " * 20000)]


async def test_secrets_reach_the_environment(peer: Peer) -> None:
    async with AsyncClient(peer.url) as client:
        session = client.environment().session(
            task_spec={}, secrets={"token": "hunter22"}, secrets_in_body=not peer.reads_secrets_in_header
        )
        async with session:
            block = (await session.call("whoami")).blocks[0]
            assert isinstance(block, TextBlock) and json.loads(block.text) == {"token": "hunter22"}
        assert "hunter22" not in repr(session)


async def test_secrets_in_the_body_are_refused_without_being_repeated(peer: Peer) -> None:
    if peer.reads_secrets_in_body:
        pytest.skip("this server takes them")
    async with AsyncClient(peer.url) as client:
        session = client.environment().session(
            task_spec={}, secrets={"token": "hunter22"}, secrets_in_body=True
        )
        with pytest.raises(BadRequest, match="secrets") as refused:
            await session.open()
        assert refused.value.status == 422 and "hunter22" not in str(refused.value)


async def test_the_terminal_tool_takes_the_last_message(peer: Peer) -> None:
    async with AsyncClient(peer.url) as client, client.environment().session(task_spec={}) as session:
        if peer.terminal:
            assert (await session.call_terminal("42")).blocks == [TextBlock(text="answered 42")]
            assert session.finished and session.reward == 1.0
        else:
            with pytest.raises(Unsupported, match="no terminal tool"):
                await session.call_terminal("42")


async def test_group_scores_where_the_environment_has_them(peer: Peer) -> None:
    hello = Message(role="user", blocks=[TextBlock(text="hello")])
    async with AsyncClient(peer.url) as client:
        async with client.environment("peer").session(task_spec={}) as session:
            if peer.new:
                scores = await session.score_group([[hello], GroupCandidate(messages=[hello, hello])])
                assert [score.reward for score in scores] == [1.0, 2.0]
            else:
                with pytest.raises(Unsupported):
                    await session.score_group([[hello]])
        async with client.environment("second").session(split="train", index=0) as session:
            assert not await session.supports_score_group()
            with pytest.raises(Unsupported):
                await session.score_group([[hello]])
            await session.call("nothing")


@pytest.mark.parametrize("source", [{"split": "nope", "index": 0}, {"split": "train", "index": 100_000}])
async def test_a_task_that_is_not_there(peer: Peer, source: dict[str, object]) -> None:
    async with AsyncClient(peer.url) as client:
        with pytest.raises((BadRequest, ServerError)):
            await client.environment().session(**source).open()  # type: ignore[arg-type]  # kinds are mixed


async def test_an_unknown_environment(peer: Peer) -> None:
    async with AsyncClient(peer.url) as client:
        with pytest.raises(BadRequest) as refused:
            await client.environment("nope").splits()
        assert refused.value.status == 404


async def test_a_setup_that_fails_is_a_fault(peer: Peer) -> None:
    async with AsyncClient(peer.url, retry=QUICK) as client:
        session = client.environment().session(task_spec={"setup_fails": True})
        async with session:
            with pytest.raises(SetupError if peer.ours else ServerError, match="no setup today"):
                await session.prompt()


async def test_a_session_deleted_behind_our_back_is_lost(peer: Peer) -> None:
    async with (
        AsyncClient(peer.url, retry=QUICK) as client,
        client.environment().session(task_spec={}) as session,
    ):
        from_outside = client.environment().session(task_spec={})
        async with from_outside:
            pass
        with pytest.raises(Exception, match="not open"):
            await from_outside.call("echo", {"text": "x"})
        await session.call("echo", {"text": "x"})
        await client._connection.transport.send("POST", "/delete", headers=session._headers)
        reason = "Session deleted" if peer.ours else "Active environment not found"
        with pytest.raises(SessionLost, match=reason):
            await session.call("echo", {"text": "x"})
        with pytest.raises(SessionLost, match=reason):
            await session.prompt()


async def test_keep_alive_finds_a_lost_session_early(peer: Peer) -> None:
    async with (
        AsyncClient(peer.url, keepalive_s=0.05) as client,
        client.environment().session(task_spec={}) as session,
    ):
        await client._connection.transport.send("POST", "/delete", headers=session._headers)
        await until(lambda: "lost" in repr(session))
        with pytest.raises(SessionLost, match="keep-alive"):
            await session.call("echo", {"text": "x"})


async def test_a_broken_stream_is_resumed_and_the_tool_runs_once(peer: Peer) -> None:
    async with (
        CutProxy(peer.url) as proxy,
        AsyncClient(proxy.url, retry=QUICK) as client,
        client.environment("peer").session(task_spec={}) as session,
    ):
        proxy.cut(b"/peer/call", answer=b"event: task_id", times=3)
        assert (await session.call("slow", {"number": 1.0})).blocks == [TextBlock(text="1")]
        assert proxy.cuts == 3


async def test_a_call_that_broke_before_its_task_id_never_runs_twice(peer: Peer) -> None:
    async with (
        CutProxy(peer.url) as proxy,
        AsyncClient(proxy.url, retry=QUICK) as client,
        client.environment("peer").session(task_spec={}) as session,
    ):
        if peer.ours:
            proxy.cut(b"/peer/call", times=3)
            assert (await session.call("slow", {"number": 0.3})).blocks == [TextBlock(text="1")]
            assert proxy.cuts == 3
        else:
            proxy.cut(b"/peer/call")
            with pytest.raises(ConnectionLost, match="may have run") as lost:
                await session.call("slow", {"number": 0})
            assert lost.value.may_have_run and lost.value.retryable
        assert (await session.call("slow", {"number": 0})).blocks == [TextBlock(text="2")]


async def test_a_lost_answer_to_create_still_opens_the_session(peer: Peer) -> None:
    async with CutProxy(peer.url) as proxy, AsyncClient(proxy.url, retry=QUICK) as client:
        proxy.cut(b"POST /create HTTP")
        async with client.environment().session(task_spec={"id": 3}) as session:
            assert proxy.cuts == 1
            assert await session.prompt() == [TextBlock(text="task 3")]


async def test_cancelling_a_call_leaves_the_session_usable(peer: Peer) -> None:
    async with AsyncClient(peer.url) as client, client.environment().session(task_spec={}) as session:
        with pytest.raises(TimeoutError):
            await session.call("slow", {"number": 20}, timeout_s=0.3)
        assert (await session.call("echo", {"text": "x"})).blocks == [TextBlock(text="x")]


def test_the_synchronous_face_plays_an_episode(peer: Peer) -> None:
    with Client(peer.url, keepalive_s=0.05) as client:
        assert client.environments() == ["peer", "second"]
        environment = client.environment("peer")
        tasks = environment.tasks("train")
        assert len(tasks) == 450 and tasks[3].spec == {"id": 3}
        assert [task.index for task in tasks] == list(range(450))
        with environment.session(tasks[4]) as session:
            assert session.prompt() == [TextBlock(text="task 4")]
            assert session.call("add", {"number": 3}).finished
            assert session.finished and session.reward == 3.0


async def test_hundreds_of_sessions_at_once(peer: Peer) -> None:
    async def episode(number: int) -> float | None:
        async with environment.session(task_spec={"id": number}) as session:
            assert await session.prompt() == [TextBlock(text=f"task {number}")]
            await session.call("add", {"number": 1})
            return session.reward

    async with AsyncClient(peer.url) as client:
        environment = client.environment("peer")
        assert await asyncio.gather(*map(episode, range(200))) == [1.0] * 200
