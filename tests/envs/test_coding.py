"""The coding environment, played through a real server with sandboxes; envs/coding has the other tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from coding_env.env import CodingEnvironment
from coding_env.policy import instance_in, play, play_empty, play_source
from coding_env.tasks import instance_of
from orsay import ToolOutput
from orsay_client import AsyncClient

from ..support.engine import needs_engine
from ..support.server_process import ServerProcess, server

pytestmark = needs_engine

TRAIN = CodingEnvironment.splits["train"]


@pytest.fixture(scope="module")
def served() -> Iterator[ServerProcess]:
    with server("coding_env.env:CodingEnvironment", options=["--sandboxes", "docker"]) as found:
        yield found


@pytest.mark.parametrize("language", ["python", "bash", "awk", "perl"])
async def test_scripted_players_play_it_in_every_language(served: ServerProcess, language: str) -> None:
    index = next(
        index
        for index, task in enumerate(TRAIN)
        if task["form"] == "program" and task["language"] == language
    )
    async with AsyncClient(served.url) as client:
        environment = client.environment("codingenvironment")
        seen: list[tuple[str, Mapping[str, Any], ToolOutput]] = []
        async with environment.session(split="train", index=index) as session:
            assert await play(session, lambda *call: seen.append(call)) == 1.0
            assert session.finished
        assert [name for name, _, _ in seen] == ["write_file", "run_examples", "submit"]
        assert seen[1][2].blocks[0].text.count("right.") == 3  # type: ignore[union-attr]  # it is text


async def test_a_function_and_no_solution_and_a_wrong_one(served: ServerProcess) -> None:
    async with AsyncClient(served.url) as client:
        environment = client.environment("codingenvironment")
        async with environment.session(split="test", index=0) as session:
            instance = await instance_in(session)
            assert instance == instance_of(CodingEnvironment.splits["test"][0])
            said = await session.call("bash", {"command": "pwd; ls; python3 -c 'print(6 * 7)'"})
            assert said.blocks[0].text == "/work\nexamples.txt\n42\n"  # type: ignore[union-attr]  # it is text
            assert await play_source(session, instance, instance.solution()) == 1.0
        async with environment.session(split="test", index=0) as session:
            assert await play_empty(session) == 0.0
            assert session.finished
        async with environment.session(split="test", index=0) as session:
            wrong = f"def {instance.function}(*given): return None"
            assert await play_source(session, instance, wrong) == 0.0
