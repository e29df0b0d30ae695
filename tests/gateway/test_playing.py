"""Servers of ours and released ones, discovered and played through a gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import httpx
import pytest
import pytest_asyncio
from orsay.serving.assembly import Running
from orsay_client import AsyncClient, BadRequest, ToolError, ToolRefused, Unsupported
from orsay_protocol import GroupCandidate, Message, TextBlock
from orsay_protocol.sse import Decoder

from ..interop.player import Players
from ..support.gateways import UPSTREAMS, gateway, upstream

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


class Front:
    """A gateway in front of one kind of server."""

    def __init__(self, kind: str, behind: str, running: Running) -> None:
        self.new = kind != "ors-sdk"
        self.behind = behind
        self.url = running.url


@pytest_asyncio.fixture(params=UPSTREAMS, scope="module", loop_scope="module")
async def front(request: pytest.FixtureRequest) -> AsyncIterator[Front]:
    with upstream(request.param) as url:
        async with gateway(url, label=request.param) as running:
            yield Front(request.param, url, running)


@pytest_asyncio.fixture(loop_scope="module")
async def client(front: Front) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(front.url) as found:
        yield found


@pytest.fixture(scope="module")
def players() -> Iterator[Players]:
    """Released clients, for one gateway after the other."""
    with ExitStack() as stack:
        yield Players("", stack)


async def test_the_upstream_is_described_as_it_describes_itself(front: Front) -> None:
    async with httpx.AsyncClient() as http:
        for path in ("/list_environments", "/kit/tools", "/kit/splits", "/second/tools"):
            here, there = [(await http.get(url + path)).json() for url in (front.url, front.behind)]
            if path.endswith("tools"):  # an old server leaves keys out that every client may read here
                assert here["tools"] == there["tools"]
                assert here["terminal_tool"] == there.get("terminal_tool")
            else:
                assert here == there


async def test_tasks_come_through(front: Front, client: AsyncClient) -> None:
    tasks = client.environment("kit").tasks("train")
    assert await tasks.count() == 12
    first = (await tasks.get(0)).spec
    assert first == {"id": "train-0", "goal": "say 0", "unicode": "héé\u2028 \u0085"}
    assert (await tasks.get(-1)).spec["id"] == "train-11"
    assert [task.spec["id"] for task in await tasks.range(2, 4)] == ["train-2", "train-3"]
    assert len([task async for task in tasks]) == 12
    with pytest.raises(BadRequest, match=r"[Ss]plit"):
        await client.environment("kit").tasks("dusk").count()
    with pytest.raises(BadRequest, match=r"[Ii]ndex"):
        await tasks.get(999)


async def test_an_episode_is_played_to_its_end(front: Front, client: AsyncClient) -> None:
    async with client.environment("kit").session(split="train", index=3) as session:
        prompt = await session.prompt()
        assert isinstance(prompt[0], TextBlock) and prompt[0].text == "  Task train-3: say 3\n"
        assert "add" in {tool.name for tool in await session.tools()}
        assert [message.role for message in await session.messages()] == ["user"]
        output = await session.call("add", {"n": 2})
        assert (output.blocks, output.reward, output.metadata) == ([TextBlock(text="2")], 2.0, {"n": 2})
        assert (await session.call("add", {"n": 5})).blocks == [TextBlock(text="7")]
        assert (await session.call("finish", {"n": 1})).finished
        assert session.finished and session.rewards == (2.0, 5.0, 1.0)


async def test_tasks_of_the_clients_own_making_come_through(client: AsyncClient) -> None:
    async with client.environment("kit").session(task_spec={"id": "mine", "goal": "é\u2028"}) as session:
        assert (await session.call("look", {})).blocks == [TextBlock(text="mine")]


async def test_white_space_arrives_whatever_it_is(client: AsyncClient) -> None:
    async with client.environment("kit").session(split="train", index=0) as session:
        for text in (" " * 20_000, "\u3000 \u2028" * 9_000, '\\ \\\\" ' * 9_000, "\n " * 9_000):
            assert (await session.call("repeat", {"text": text})).blocks == [TextBlock(text=text)]


async def test_no_piece_of_a_stream_begins_with_white_space(front: Front) -> None:
    text = " " * 20_000 + '"\\' + " " * 20_000
    async with httpx.AsyncClient(base_url=front.url, headers={"X-Session-ID": "spaces-" + front.url}) as http:
        created = await http.post("/create", json={"env_name": "kit", "split": "train", "index": 0})
        assert created.status_code == 200, created.text
        answer = await http.post("/kit/call", json={"name": "repeat", "input": {"text": text}})
        await http.post("/delete")
    events = Decoder().feed(answer.content)
    pieces = [event.data for event in events[1:]]
    assert [event.event for event in events] == ["task_id", *["chunk"] * (len(pieces) - 1), "end"]
    assert all(piece == piece.strip() for piece in pieces)
    assert json.loads("".join(pieces))["output"]["blocks"][0]["text"] == text


async def test_a_refused_call_is_an_answer_and_the_session_goes_on(client: AsyncClient) -> None:
    async with client.environment("kit").session(split="train", index=0) as session:
        with pytest.raises(ToolRefused) as caught:
            await session.call("nope", {})
        assert caught.value.reason == "not_found"
        with pytest.raises(ToolRefused):
            await session.call("add", {"n": 1001})
        assert (await session.call("add", {"n": 1})).reward == 1.0


async def test_a_tool_that_raises_is_a_tool_error(client: AsyncClient) -> None:
    async with client.environment("kit").session(split="train", index=0) as session:
        with pytest.raises(ToolError, match="the tool broke"):
            await session.call("fail", {"text": "the tool broke\nin two lines"})
        assert (await session.call("add", {"n": 1})).reward == 1.0


async def test_secrets_arrive(client: AsyncClient) -> None:
    secrets = {"token": "swordfish"}
    async with client.environment("kit").session(split="train", index=0, secrets=secrets) as session:
        output = await session.call("reveal", {})
        assert output.metadata == {"lengths": {"token": 9}}


async def test_groups_are_scored_where_the_upstream_can(front: Front, client: AsyncClient) -> None:
    def candidate(text: str) -> GroupCandidate:
        return GroupCandidate(messages=[Message(role="assistant", blocks=[TextBlock(text=text)])])

    async with client.environment("kit").session(split="train", index=0) as session:
        if not front.new:
            with pytest.raises(Unsupported):
                await session.score_group([candidate("four")])
            return
        scores = await session.score_group([candidate("four"), candidate("seven")])
        assert [score.reward for score in scores] == [4.0, 5.0]


async def test_many_sessions_play_at_once(client: AsyncClient) -> None:
    async def play(number: int) -> list[str]:
        async with client.environment("kit").session(split="train", index=number % 12) as session:
            outputs = [await session.call("add", {"n": number}) for _ in range(3)]
            return [output.blocks[0].text for output in outputs]  # type: ignore[union-attr]  # all text

    for number, counted in enumerate(await asyncio.gather(*map(play, range(30)))):
        assert counted == [str(number), str(2 * number), str(3 * number)]


async def test_a_stream_starts_before_the_tool_ends(front: Front) -> None:
    async with httpx.AsyncClient(base_url=front.url, headers={"X-Session-ID": "early-" + front.url}) as http:
        await http.post("/create", json={"env_name": "kit", "split": "train", "index": 0})
        body = {"name": "slow", "input": {"seconds": 1.5}}
        started = asyncio.get_running_loop().time()
        async with http.stream("POST", "/kit/call", json=body) as answer:
            pieces = answer.aiter_bytes()
            assert b"event: task_id" in await anext(pieces)
            assert asyncio.get_running_loop().time() - started < 1.4
            rest = b"".join([piece async for piece in pieces])
        assert b"event: end" in rest and b"rested" in rest
        await http.post("/delete")


async def test_a_finished_call_is_read_again_by_its_task_id(front: Front) -> None:
    async with httpx.AsyncClient(base_url=front.url, headers={"X-Session-ID": "again-" + front.url}) as http:
        await http.post("/create", json={"env_name": "kit", "split": "train", "index": 0})
        body = {"name": "add", "input": {"n": 3}}
        first = await http.post("/kit/call", json=body)
        task_id = Decoder().feed(first.content)[0].data
        again = await http.post("/kit/call", json={**body, "task_id": task_id})
        assert again.content == first.content
        await http.post("/delete")


@pytest.mark.venv
@pytest.mark.parametrize("released", [("openreward", "0.1.167"), ("ors-sdk", "0.1.0")], ids="-".join)
async def test_a_released_client_plays_through_it(
    front: Front, players: Players, released: tuple[str, str]
) -> None:
    def play() -> None:
        client = players.get(*released)
        played = client.play(
            "episode", "kit", url=front.url, calls=[["add", {"n": 4}], ["repeat", {"text": " " * 20_000}]]
        )
        outputs = [each["value"] for each in played["outputs"]]
        assert outputs[0]["reward"] == 4.0
        assert outputs[1]["blocks"][0]["text"] == " " * 20_000
        spaces = client.play("white_space", "kit", url=front.url, tool="repeat", field="text")
        assert spaces["cases"] > 50 and spaces["wrong"] == []
        together = client.play("together", "kit", url=front.url, sessions=10, calls=3)
        assert together["counters"] == [[str(n), str(2 * n), str(3 * n)] for n in range(10)]

    await asyncio.to_thread(play)
