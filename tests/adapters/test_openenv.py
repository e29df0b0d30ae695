"""The released OpenEnv behind a real server: its own server by URL, and its classes in our processes."""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay.errors import LoadError
from orsay.runtimes.loader import load, source_of
from orsay_client import (
    BadRequest,
    Client,
    Fault,
    Overloaded,
    Retry,
    Session,
    ToolError,
    ToolRefused,
    WorkerLost,
)
from orsay_protocol import TextBlock

from tests.support.forkserver import Forked
from tests.support.server_process import server
from tests.support.servers import WITH_OPENENV, orsay_programs
from tests.support.sockets import free_port

pytest.importorskip("openenv", reason="needs the extra openenv")
try:
    importlib.metadata.version("openenv")  # its predecessor openenv-core has modules of the same names
except importlib.metadata.PackageNotFoundError:
    pytest.skip("needs openenv 0.10; openenv-core is installed in its place", allow_module_level=True)
from tests.support import openenv_without_page  # noqa: F401 - the adapter imports openenv here too

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(300),
]  # its import alone takes seconds, and more on a busy machine

FILE = "tests/adapters/openenv_environments.py"
START_S = 120.0


@contextlib.contextmanager
def openenv_server(*named: str, port: int = 0) -> Iterator[tuple[str, Forked]]:
    """OpenEnv's own servers, ``echo=8`` below ``/echo-8``: the URL and the process of all."""
    port = port or free_port()
    with open(os.devnull, "wb") as nowhere:
        output = nowhere.fileno()
        process = orsay_programs(*WITH_OPENENV).start([FILE, str(port), *named], stdout=output, stderr=output)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url, process)
        yield url, process
    finally:
        process.kill()
        process.wait(20)


def _wait_for(url: str, process: Forked) -> None:
    async def healthy() -> None:
        async with asyncio.timeout(START_S), httpx.AsyncClient() as http:
            while process.poll() is None:
                try:
                    if (await http.get(f"{url}/nothing")).status_code == 404:
                        return
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        raise RuntimeError(f"OpenEnv's server ended with {process.returncode}")

    asyncio.run(healthy())


@pytest.fixture(scope="module")
def openenv() -> Iterator[str]:
    """The URL of OpenEnv's servers for all that do not stop them."""
    with openenv_server("echo=8", "echo=2", "echo=1", "tools=8", "tasked=8", "echo") as (url, _):
        yield url


class Doomed:
    """A server of OpenEnv's that a test kills, and starts again at the same port."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._port = free_port()
        self.start()

    def start(self) -> None:
        running = openenv_server("echo=8", port=self._port)
        self.url, self._process = self._stack.enter_context(running)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(20)


@pytest.fixture(scope="module")
def doomed() -> Iterator[Doomed]:
    with contextlib.ExitStack() as stack:
        yield Doomed(stack)


@pytest.fixture(scope="module")
def containers(openenv: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file for each container that the `docker` command on the path has started: there is no engine."""
    folder, program = tmp_path_factory.mktemp("containers"), tmp_path_factory.mktemp("bin") / "docker"
    script = Path(__file__).with_name("engineless_docker.py")
    upstream = openenv.rpartition(":")[2]
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I {script} {folder} {upstream} "$@"\n')
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        yield folder


@pytest.fixture(scope="module", params=["process", "local"])
def url(request: pytest.FixtureRequest, openenv: str, doomed: Doomed, containers: Path) -> Iterator[str]:
    """Everything twice: from a server, and in our own processes."""
    targets = [f"openenv:{openenv}/{name}-8?name={name}" for name in ("echo", "tools", "tasked")]
    targets.append(f"openenv:{openenv}/echo-1?name=narrow")
    targets.append(f"openenv:{openenv}/echo-2?name=slow&answer_limit_s=2")
    classes = [f"openenv:{FILE}:{name}?name=own-{name.lower()}" for name in ("Echo", "Tools", "Lonely")]
    classes.append(f"openenv:{FILE}:Echo?name=greeter&greeting=hello&max_steps=2&prompt=Speak.")
    scored = f"openenv:{openenv}/tools-8?name=scored&reward=tests/adapters/scores.py:length"
    others = [
        scored,
        f"openenv:{doomed.url}/echo-8?name=doomed",
        "openenv:image:echo-env:latest?name=contained",
    ]
    with server(*targets, *classes, *others, runtime=request.param, imported=WITH_OPENENV) as running:
        yield running.url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def impatient(url: str) -> Iterator[Client]:
    """A client of the same server that does not wait until there is room."""
    with Client(url, retry=Retry(tries=1)) as other:
        yield other


def play(client: Client, name: str, index: int = 0, split: str = "train") -> Session:
    return client.environment(name).session(split=split, index=index)


def text(blocks: Any) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


@pytest.mark.parametrize("name", ["echo", "own-echo"])
def test_the_echo_is_played_to_the_end_with_its_reward_for_length(client: Client, name: str) -> None:
    with play(client, name, 3) as session:
        assert text(session.prompt()) == "Say a word and hear it.\nready 3"
        outputs = [session.call("step", {"message": "a" * length}) for length in (1, 5, 10, 20)]
        assert [output.reward for output in outputs] == [0.1, 0.5, 1.0, 2.0]
        assert [output.finished for output in outputs] == [False, False, False, True]
        assert text(outputs[1].blocks) == "aaaaa"
        assert outputs[1].metadata == {"observation": {"echoed_message": "aaaaa"}, "metadata": {"steps": 2}}
        with pytest.raises(ToolRefused, match="finished"):
            session.call("step", {"message": "a"})


@pytest.mark.parametrize("name", ["echo", "own-echo"])
def test_the_action_model_is_the_schema_and_is_kept_to(client: Client, name: str) -> None:
    (step,) = client.environment(name).tools()
    assert (step.name, step.description) == ("step", "Say something.")
    assert step.input_schema is not None
    assert set(step.input_schema["properties"]) == {"message"}
    assert step.input_schema["properties"]["message"]["minLength"] == 1
    assert step.input_schema["required"] == ["message"]
    with play(client, name) as session:
        for wrong in ({}, {"message": 3}, {"message": ""}, {"message": "a", "more": 1}):
            with pytest.raises(ToolRefused, match="validation"):
                session.call("step", wrong)
        refused = session.call("step", {"message": "LOUD"})  # what only the model's own validator refuses
        assert "refused" in text(refused.blocks) and refused.reward is None and not refused.finished
        assert session.call("step", {"message": "a"}).reward == 0.1


@pytest.mark.parametrize("name", ["tools", "own-tools"])
def test_mcp_tools_are_tools_with_their_schemas_and_results(client: Client, name: str) -> None:
    tools = {spec.name: spec for spec in client.environment(name).tools()}
    assert set(tools) == {"echo_message", "echo_with_length", "fail", "prompt_tool"}
    assert tools["echo_with_length"].description == "Echo the message with its length."
    assert tools["echo_with_length"].input_schema is not None
    assert tools["echo_with_length"].input_schema["properties"]["times"] == {"default": 1, "type": "integer"}
    with play(client, name) as session:
        assert session.prompt()
        first = session.call("echo_message", {"message": "hé"})
        assert (text(first.blocks), first.reward, first.finished) == ("hé", 1.0, False)
        with pytest.raises(ToolRefused, match="times"):
            session.call("echo_with_length", {"message": "ab", "times": "x"})
        second = session.call("echo_with_length", {"message": "ab", "times": 2})
        assert json.loads(text(second.blocks)) == {"message": "abab", "length": 4}
        assert second.metadata is not None
        assert second.metadata["observation"]["tool_name"] == "echo_with_length"
        third = session.call("prompt_tool", {"text": "ab"})
        assert (text(third.blocks), third.reward, third.finished) == ("ba", 3.0, True)


@pytest.mark.parametrize("name", ["tools", "own-tools"])
def test_a_tool_that_fails_answers_the_model_and_is_no_fault(client: Client, name: str) -> None:
    with play(client, name) as session:
        output = session.call("fail")
    assert "it failed" in text(output.blocks)
    assert output.metadata is not None
    assert output.metadata["observation"]["error"]["error_type"] == "execution_error"


def test_a_reward_of_ones_own_is_computed_from_the_observation(client: Client) -> None:
    with play(client, "scored") as session:
        assert session.call("echo_message", {"message": "12345"}).reward == 0.5
        assert session.call("echo_with_length", {"message": "123"}).reward == 0.3


def test_an_environment_that_does_not_end_is_ended_and_gets_its_arguments(client: Client) -> None:
    with play(client, "greeter") as session:
        assert text(session.prompt()) == "Speak.\nhello 0"
        assert not session.call("step", {"message": "a"}).finished
        assert session.call("step", {"message": "a"}).finished


def test_tasks_of_the_environment_are_the_tasks(client: Client) -> None:
    environment = client.environment("tasked")
    assert [split.name for split in environment.splits()] == ["train", "test"]
    assert (environment.tasks("train").count(), environment.tasks("test").count()) == (3, 1)
    assert environment.tasks("train").get(1).spec == {"split": "train", "index": 1, "task": {"word": "river"}}
    assert environment.tasks("train").get(-1).spec["task"] == {"word": "cloud"}
    with pytest.raises(BadRequest):
        environment.tasks("train").get(3)
    with play(client, "tasked", 0, "test") as session:
        assert text(session.prompt()).endswith("planet")


@pytest.mark.parametrize("name", ["echo", "own-echo"])
def test_what_the_environment_raises_is_a_fault(client: Client, name: str) -> None:
    with play(client, name) as session:
        with pytest.raises(ToolError):
            session.call("step", {"message": "raise"})
        assert session.reward is None
        assert session.call("step", {"message": "a"}).reward == 0.1


@pytest.mark.parametrize("name", ["echo", "own-echo"])
def test_sessions_that_run_at_once_do_not_mix(client: Client, name: str) -> None:
    def say(number: int) -> list[str]:
        with play(client, name, number) as session:
            words = [text(session.prompt()).rpartition(" ")[2]]
            words += [text(session.call("step", {"message": f"{number} {step}"}).blocks) for step in range(4)]
            return words

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(say, range(8)))
    assert found == [[str(each), *(f"{each} {step}" for step in range(4))] for each in range(8)]


def test_a_class_that_cannot_share_a_process_is_overloaded_not_shared(
    client: Client, impatient: Client
) -> None:
    with play(client, "own-lonely") as session:
        session.prompt()
        with (
            pytest.raises(Overloaded, match="SUPPORTS_CONCURRENT_SESSIONS"),
            play(impatient, "own-lonely") as other,
        ):
            other.prompt()
        assert session.call("step", {"message": "a"}).reward == 0.1
    with play(client, "own-lonely") as session:  # the place is free again
        session.prompt()


def test_a_full_server_is_overloaded_and_a_closed_session_makes_room(
    client: Client, impatient: Client
) -> None:
    for _ in range(3):
        with play(client, "narrow") as session:
            assert session.call("step", {"message": "a"}).reward == 0.1
            with pytest.raises(Overloaded, match="takes no more"), play(impatient, "narrow") as other:
                other.prompt()


def test_an_answer_that_came_too_late_is_nobodys(client: Client) -> None:
    with play(client, "slow") as session:
        with pytest.raises(Fault) as caught:
            session.call("step", {"message": "sleep"})
        assert caught.value.fault_class == "time_limit"
        with pytest.raises(WorkerLost):
            session.call("step", {"message": "a"})
        assert session.reward is None


def test_a_server_that_dies_is_a_fault_and_no_episode_goes_on_in_another(
    client: Client, doomed: Doomed
) -> None:
    with play(client, "doomed") as session:
        session.call("step", {"message": "a"})
        doomed.kill()
        with pytest.raises(WorkerLost, match="is gone"):
            session.call("step", {"message": "a"})
        with pytest.raises(WorkerLost), play(client, "doomed") as other:
            other.prompt()
        doomed.start()
        with pytest.raises(WorkerLost):
            session.call("step", {"message": "a"})
        assert session.rewards == (0.1,)
    with play(client, "doomed") as fresh:
        assert fresh.call("step", {"message": "ab"}).reward == 0.2


def test_an_image_is_run_in_a_container_for_each_episode(client: Client, containers: Path) -> None:
    assert list(containers.iterdir()) == []  # the one that was looked at is gone
    with play(client, "contained", 2) as session:
        assert text(session.prompt()).endswith("ready 2")
        assert [each.read_text() for each in containers.iterdir()] == ["echo-env:latest"]
        assert session.call("step", {"message": "abc"}).reward == 0.3
    assert list(containers.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("openenv:http://127.0.0.1:9", "no OpenEnv server answers at http://127.0.0.1:9"),
        (f"openenv:{FILE}:Ehco", "did you mean 'Echo'"),
        (f"openenv:{FILE}:EchoAction", "no environment of OpenEnv"),
        (f"openenv:{FILE}:MCPEnvironment", "is abstract"),
        (f"openenv:{FILE}:Echo?greting=x", "did you mean 'greeting'"),
        (f"openenv:{FILE}:Echo?max_steps=many", "max_steps must be"),
        (f"openenv:{FILE}:Echo?reward={FILE}:nothing", "has no 'nothing'"),
        ("openenv:http://127.0.0.1:9?header=1", "did you mean 'headers'"),
    ],
)
def test_what_is_wrong_with_a_target_is_reported(target: str, message: str) -> None:
    with pytest.raises(LoadError) as caught:
        load(target)
    assert message in str(caught.value)


def test_a_server_of_another_kind_is_reported() -> None:
    with (
        server("docs/examples/environments/reverse.py:Reverse", imported=WITH_OPENENV) as running,
        pytest.raises(LoadError, match="is no OpenEnv server"),
    ):
        load(f"openenv:{running.url}")


def test_an_image_without_an_engine_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no docker there
    with pytest.raises(LoadError, match="needs a Docker engine"):
        load("openenv:image:echo-env:latest")


def test_a_class_is_loaded_again_from_its_target() -> None:
    (cls,) = load(f"openenv:{FILE}:Echo?greeting=hi&name=e&reward=tests/adapters/scores.py:length")
    assert source_of(cls) == f"openenv:{FILE}:Echo?reward=tests/adapters/scores.py:length&name=e&greeting=hi"
    (again,) = load(source_of(cls))
    assert source_of(again) == source_of(cls)
