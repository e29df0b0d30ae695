"""What the environments in ``envs/`` have in common: each is a project, a Space, and can be played."""

import json
import re
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from orsay import Server, ToolOutput
from orsay.authoring.hosted import host
from orsay.runtimes.loader import load
from orsay.settings import Settings
from orsay_client import AsyncClient

pytestmark = pytest.mark.process

ENVS = Path(__file__).parents[2] / "envs"
TARGETS = {
    "arithmetic": "arithmetic_env.env:ArithmeticEnvironment",
    "doors": "doors_env.env:DoorsEnvironment",
    "echo": "echo_env.env:EchoEnvironment",
    "guess": "guess_env.env:GuessEnvironment",
}
APART = {
    "coding": "coding_env.env:CodingEnvironment",
    "terminal": "terminal_env.env:TerminalEnvironment",
    "textarena": "textarena_env.env:TextArena",
}
"""Need what the others do without, sandboxes or packages: tests/envs has a file for each of them."""
PROJECTS = TARGETS | APART
BAD_POLICIES = {
    "arithmetic": "play_wrong",
    "doors": "play_blind",
    "echo": "play_wrong",
    "guess": "play_stubborn",
}

each = pytest.mark.parametrize("name", PROJECTS)
played = pytest.mark.asyncio(loop_scope="module")


def policy(name: str, function: str = "play") -> Callable[..., Awaitable[float]]:
    found: Callable[..., Awaitable[float]] = getattr(import_module(f"{name}_env.policy"), function)
    return found


def test_each_folder_is_an_environment_known_here() -> None:
    assert sorted(path.name for path in ENVS.iterdir() if (path / "pyproject.toml").exists()) == sorted(
        PROJECTS
    )


@each
def test_the_class_is_found_where_the_documents_say(name: str) -> None:
    if name not in APART:
        (cls,) = load(PROJECTS[name])
        assert host(cls).description
    assert PROJECTS[name] in (ENVS / name / "README.md").read_text()


@each
def test_the_project_can_be_installed(name: str) -> None:
    project = tomllib.loads((ENVS / name / "pyproject.toml").read_text())
    assert project["project"]["name"] == f"{name}-env"
    assert "orsay>=0.1" in project["project"]["dependencies"]
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [f"{name}_env"]


@each
def test_the_readme_makes_the_folder_a_space(name: str) -> None:
    front, _, _ = (ENVS / name / "README.md").read_text().removeprefix("---\n").partition("\n---\n")
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert (fields["sdk"], fields["app_port"]) == ("docker", "8080")
    assert len(fields["short_description"]) <= 60
    assert {fields["colorFrom"], fields["colorTo"]} <= {
        "red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"
    }  # fmt: skip


@each
def test_the_container_serves_the_class_on_the_port_of_the_space_as_an_ordinary_user(name: str) -> None:
    lines = (ENVS / name / "Dockerfile").read_text().splitlines()
    assert "ARG BASE=python:3.12-slim" in lines
    assert "FROM ${BASE}" in lines
    assert lines.index("USER 1000") > max(at for at, line in enumerate(lines) if line.startswith("RUN "))
    command = json.loads(next(line for line in lines if line.startswith("CMD ")).removeprefix("CMD "))
    assert command == [
        "orsay",
        "serve",
        PROJECTS[name],
        "--allow-anonymous",
    ]
    assert "ORSAY_HOST=0.0.0.0" in " ".join(lines)
    assert "ORSAY_PORT=8080" in " ".join(lines)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("arithmetic", "id split index level question"),
        ("doors", "id split index door"),
        ("guess", "id split index low high max_guesses"),
        ("terminal", "id split index kind template level"),
    ],
)
async def test_no_task_holds_an_answer(name: str, fields: str) -> None:
    (cls,) = load(PROJECTS[name])
    assert " ".join(await host(cls).tasks.get_task("train", 0)) == fields


@pytest_asyncio.fixture(params=["process", "local"], scope="module", loop_scope="module")
async def client(request: pytest.FixtureRequest) -> AsyncIterator[AsyncClient]:
    settings = Settings(port=0, runtime=request.param, workers=1)
    async with (
        Server(list(TARGETS.values())).running(settings) as running,
        AsyncClient(running.url) as client,
    ):
        yield client


@played
async def test_scripted_players_play_them_through_a_server(client: AsyncClient) -> None:
    for name, target in TARGETS.items():
        key = target.partition(":")[2]
        for index in (0, 1, 2):
            seen: list[tuple[str, Mapping[str, Any], ToolOutput]] = []
            async with client.environment(key).session(split="train", index=index) as session:
                reward = await policy(name)(session, lambda *call: seen.append(call))  # noqa: B023
                assert session.finished, name
            assert 1.0 <= reward <= 1.1, name
            assert seen[-1][2].reward == 1.0, name
            async with client.environment(key).session(split="train", index=index) as session:
                assert await policy(name, BAD_POLICIES[name])(session) == 0.0, name


@played
async def test_a_hostile_answer_is_wrong_and_the_session_is_answered_so(client: AsyncClient) -> None:
    async with client.environment("ArithmeticEnvironment").session(split="test", index=3) as session:
        for expression in ("9**9**9**9", "(" * 100_000, "__import__('os')"):
            refusal = await session.call("calculator", {"expression": expression})
            assert re.match("Error: ", refusal.blocks[0].text)  # type: ignore[union-attr]
        output = await session.call_terminal("(" * 100_000)
        assert (output.reward, output.finished) == (0.0, True)


@played
@pytest.mark.parametrize("client", ["process"], indirect=True)  # graded apart from either
async def test_an_answer_that_takes_for_ever_to_grade_is_wrong(client: AsyncClient) -> None:
    async with client.environment("ArithmeticEnvironment").session(split="test", index=3) as session:
        output = await session.call_terminal("Answer: $9^{9^{9^{9}}}$")
        assert (output.reward, output.finished) == (0.0, True)


@played
async def test_a_task_invented_by_a_client_is_refused(client: AsyncClient) -> None:
    task = {"split": "train", "index": 0, "low": 1, "high": 2}
    with pytest.raises(Exception, match="not a task of the guess environment"):
        async with client.environment("GuessEnvironment").session(task_spec=task) as session:
            await session.prompt()
