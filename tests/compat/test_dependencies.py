"""Streams, sessions and shutdown with the dependencies at their newest and at the lowest that are allowed.

The other tests run with whatever is installed beside released packages, some of which pin what they need.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from orsay_client import AsyncClient, ToolError

from tests.interop.venvs import python_for
from tests.support.servers import running

pytestmark = pytest.mark.venv

SLOW = f"{Path(__file__).parent / 'slow_env.py'}:Slow"
QUICK_COMMENTS = {"ORSAY_STREAM_PING_S": "0.1"}

# Releases as old as the floors have no wheels for later interpreters.
LOWEST = pytest.param(
    "lowest", marks=pytest.mark.skipif(sys.version_info >= (3, 13), reason="no wheels of the lowest releases")
)


@pytest.fixture(scope="module", params=["newest", LOWEST])
def python(request: pytest.FixtureRequest) -> Path:
    return python_for("orsay", request.param)


@pytest.fixture(scope="module")
def url(python: Path) -> Iterator[str]:
    command = [str(python), "-m", "orsay", "serve", SLOW, "--port", "0", "--workers", "1"]
    with running(command, env=QUICK_COMMENTS) as server:
        yield server.url


def test_the_dependencies_are_others_than_those_of_the_tests(python: Path) -> None:
    code = (
        "from importlib.metadata import version as v; print(v('sse-starlette'), v('starlette'), v('httpx'))"
    )
    there = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, timeout=30, check=True
    ).stdout
    here = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert there != here.stdout


async def test_a_long_call_is_a_stream_with_comments_and_whole_events(url: str) -> None:
    async with AsyncClient(url) as client, client.environment().session(split="train", index=0) as session:
        headers = {"X-Session-ID": session.sid}
        body = {"name": "wait", "input": {"seconds": 0.5, "text": " \r\n é " * 3000}}
        async with httpx.AsyncClient(base_url=url, headers=headers) as http:
            answer = await http.post("/call", json=body)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "content-length" not in answer.headers
    assert answer.text.startswith("event: task_id\r\ndata: ")
    assert "\r\n\r\n: ping" in answer.text
    assert answer.text.count("event: end\r\n") == 1
    assert answer.text.endswith("\r\n\r\n")


async def test_texts_arrive_byte_for_byte(url: str) -> None:
    text = " \u2028\t" * 9000
    async with AsyncClient(url) as client, client.environment().session(split="train", index=0) as session:
        for seconds in (0.0, 0.2):
            output = await session.call("wait", {"seconds": seconds, "text": text})
            assert getattr(output.blocks[0], "text", None) == text


async def test_a_failure_of_a_long_call_is_a_fault_with_its_class(url: str) -> None:
    async with AsyncClient(url) as client, client.environment().session(split="train", index=0) as session:
        with pytest.raises(ToolError, match="RuntimeError: no luck"):
            await session.call("fail", {"seconds": 0.2})


async def test_many_streams_at_once_and_some_that_break_leave_the_server_serving(url: str) -> None:
    async with AsyncClient(url) as client:

        async def episode(number: int) -> float | None:
            async with client.environment().session(split="train", index=0) as session:
                arguments = {"seconds": 0.3, "text": str(number)}
                if number % 3 == 0:
                    with pytest.raises(TimeoutError):
                        await session.call("wait", {**arguments, "seconds": 30.0}, timeout_s=0.2)
                    return None
                return (await session.call("wait", arguments)).reward

        rewards = await asyncio.gather(*(episode(number) for number in range(60)))
        assert rewards.count(1.0) == 40
        assert await client.health() == {"status": "ok"}


def test_the_command_line_works(python: Path, url: str) -> None:
    done = subprocess.run(
        [python, "-m", "orsay", "play", url],
        input="wait\n0\nhello\n/quit\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "reward 1, 1 in all" in done.stdout
