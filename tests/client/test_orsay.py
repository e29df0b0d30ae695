"""What only our own server promises its client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from orsay_client import (
    AsyncClient,
    Client,
    Overloaded,
    Retry,
    SessionLost,
    TimeLimit,
    ToolRefused,
    Unauthorized,
    WorkerLost,
)
from orsay_protocol import TextBlock

from tests.support.servers import running

from ..support.cut_proxy import CutProxy

pytestmark = pytest.mark.process

PEER = f"{Path(__file__).parent / 'servers' / 'peer_env.py'}:Peer"
QUICK = Retry(first_delay_s=0.05, max_delay_s=0.2)


@contextmanager
def orsay(*options: str, env: Mapping[str, str] | None = None) -> Iterator[str]:
    with running([sys.executable, "-m", "orsay", "serve", PEER, "--port", "0", *options], env) as server:
        yield server.url


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with orsay("--workers", "1") as found:
        yield found


async def test_a_thousand_sessions_at_once_from_one_event_loop(url: str) -> None:
    async def episode(number: int) -> float | None:
        async with environment.session(task_spec={"id": number}) as session:
            assert await session.prompt() == [TextBlock(text=f"task {number}")]
            arrived.append(number)
            if len(arrived) == 1000:
                everyone_is_here.set()
            await everyone_is_here.wait()
            assert (await session.call("slow", {"number": 1.0})).blocks == [TextBlock(text="1")]
            await session.call("add", {"number": 2})
            assert session.finished
            with pytest.raises(ToolRefused) as refused:
                await session.call("add", {"number": 2})
            assert refused.value.reason == "episode_finished"
            return session.reward

    arrived: list[int] = []
    everyone_is_here = asyncio.Event()
    async with asyncio.timeout(100), AsyncClient(url, keepalive_s=1.0) as client:
        environment = client.environment("peer")
        assert await asyncio.gather(*map(episode, range(1000))) == [2.0] * 1000


async def test_pings_keep_an_idle_session_and_without_them_it_expires() -> None:
    with orsay("--runtime", "local", env={"ORSAY_IDLE_LIMIT_S": "1"}) as url:
        async with (
            AsyncClient(url, keepalive_s=0.2) as pinging,
            AsyncClient(url, keepalive_s=60) as silent,
            pinging.environment().session(task_spec={}) as kept,
            silent.environment().session(task_spec={}) as left,
        ):
            await asyncio.sleep(3.5)  # past the limit and a sweep: time itself is the matter
            await kept.call("echo", {"text": "x"})
            with pytest.raises(SessionLost, match=r"(?i)idle|expired"):
                await left.call("echo", {"text": "x"})


def test_the_synchronous_face_keeps_a_session_while_its_caller_blocks() -> None:
    with (
        orsay("--runtime", "local", env={"ORSAY_IDLE_LIMIT_S": "1"}) as url,
        Client(url, keepalive_s=0.2) as client,
        client.environment().session(task_spec={}) as session,
    ):
        asyncio.run(asyncio.sleep(3.5))
        session.call("echo", {"text": "x"})


async def test_a_worker_that_dies_is_a_fault_and_the_next_session_is_served() -> None:
    with orsay("--runtime", "process", "--workers", "1") as url:
        async with AsyncClient(url, retry=QUICK) as client:
            async with client.environment().session(task_spec={}) as session:
                with pytest.raises(WorkerLost) as lost:
                    await session.call("die")
                assert lost.value.retryable and lost.value.id
                with pytest.raises(WorkerLost):
                    await session.call("echo", {"text": "x"})
            async with client.environment().session(task_spec={}) as session:
                await session.call("echo", {"text": "x"})


@pytest.mark.parametrize("runtime", ["local", "process"])
async def test_a_call_past_its_time_limit_is_a_fault(runtime: str) -> None:
    with orsay("--runtime", runtime, env={"ORSAY_CALL_TIME_LIMIT_S": "0.3"}) as url:
        async with AsyncClient(url) as client, client.environment().session(task_spec={}) as session:
            with pytest.raises(TimeLimit) as fault:
                await session.call("slow", {"number": 30})
            assert fault.value.retryable and fault.value.id


async def test_keys_are_asked_for_and_never_repeated() -> None:
    with orsay("--runtime", "local", "--api-key", "right-key-1234") as url:
        async with (
            AsyncClient(url, api_key="right-key-1234") as client,
            client.environment().session(task_spec={}) as session,
        ):
            await session.call("echo", {"text": "x"})
        for key in (None, "wrong-key-1234"):
            async with AsyncClient(url, api_key=key) as client:
                with pytest.raises(Unauthorized) as refused:
                    await client.environment().session(task_spec={}).open()
                assert "key-1234" not in str(refused.value) + repr(client)


async def test_a_server_that_serves_by_index_only_takes_the_tasks_it_gave() -> None:
    with orsay("--runtime", "local", "--index-only") as url:
        async with AsyncClient(url) as client:
            environment = client.environment()
            task = await environment.tasks("train").get(7)
            assert "id" not in task.spec
            async with environment.session(task) as session:
                assert await session.prompt() == [TextBlock(text="task 7")]


async def test_a_full_server_says_so_and_is_waited_for() -> None:
    with orsay(env={"ORSAY_MAX_SESSIONS": "1"}) as url:
        async with (
            AsyncClient(url, retry=Retry(tries=1)) as client,
            client.environment().session(task_spec={}),
        ):
            with pytest.raises(Overloaded) as fault:
                await client.environment().session(task_spec={}).open()
            assert fault.value.retry_after_s is not None
        async with AsyncClient(url) as client:
            first, second = (client.environment().session(task_spec={}) for _ in range(2))
            await first.open()
            opening = asyncio.create_task(second.open())
            await first.close()
            await asyncio.wait_for(opening, 30)
            await second.close()


async def test_setup_that_takes_its_time_is_waited_for(url: str) -> None:
    async with (
        AsyncClient(url) as client,
        client.environment().session(task_spec={"setup_s": 1.5}) as session,
    ):
        await session.call("echo", {"text": "x"})


async def test_connections_that_break_everywhere_lose_nothing(url: str) -> None:
    async def episode(number: int) -> str:
        async with client.environment("peer").session(task_spec={}) as session:
            for turn in range(1, 6):
                output = await session.call("slow", {"number": 0.05 * (number % 3)})
                assert output.blocks == [TextBlock(text=str(turn))]
            return session.sid

    async with CutProxy(url) as proxy, AsyncClient(proxy.url, retry=QUICK) as client:
        proxy.cut(b"/create_session HTTP", times=5)
        proxy.cut(b"/create HTTP", times=5)
        proxy.cut(b"/peer/call HTTP", times=20)
        proxy.cut(b"/peer/call HTTP", answer=b"event: task_id", times=20)
        assert len(set(await asyncio.gather(*map(episode, range(20))))) == 20
        assert proxy.cuts == 50
