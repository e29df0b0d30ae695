"""One gateway in front of containers, a class and a released server, and clients that play through it.

Here is the whole way: an image that ``orsay build`` made, ``orsay serve`` of a file, released clients, TRL.
Gateways that are stopped or killed with ``kill -9``, and several on one engine, are in
tests/docker/test_servers.py; how containers share sessions, are watched and replaced, in
tests/docker/test_losses.py; what passes through a gateway in front of each kind of server, in tests/gateway;
images and ``orsay build`` by themselves, in tests/images.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay_client import Client, Session, WorkerLost
from orsay_protocol.sse import Decoder

from tests.interop.player import Player, player
from tests.interop.servers import released
from tests.interop.venvs import TRL, python_for
from tests.support.author_log import Log
from tests.support.config_server import ENVS
from tests.support.documentation import ROOT
from tests.support.engine import image, needs_engine
from tests.support.waiting import until_true

from .gateways import Gateway, built, docker_kill, gateway, scripted_entry

# the first may build images and install peers
pytestmark = [needs_engine, pytest.mark.venv, pytest.mark.timeout(600)]

OPENREWARD = ("openreward", "0.1.167")
EPISODES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "echoenvironment": [("hint", {}), ("echo", {"text": "nonsense"}), ("echo", {"text": "hello"})],
    "scripted": [
        ("add", {"by": 3}),
        ("say", {"text": " \u2028 as it is \n"}),
        ("fill", {"size": 100_000}),
        ("win", {}),
    ],
    "guessenvironment": [("guess", {"number": number}) for number in (50, 25)],
    "kit": [("add", {"n": 2}), ("picture", {}), ("repeat", {"text": " " * 20_000}), ("finish", {"n": 1})],
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The image of a bundled environment, two containers of another, a class, and a released server."""
    with (
        built(ENVS / "echo", base=image("base")) as echo,
        released(python_for(*OPENREWARD), OPENREWARD[0]) as kit,
    ):
        text = f"""
[environments.echo]
image = "{echo}"

{scripted_entry("scripted", replicas="2")}

[environments.guess]
class = "guess_env.env:GuessEnvironment"
path = "{ENVS}/guess"

[environments.kit]
url = "{kit.url}"
serve = ["kit"]
"""
        with gateway(tmp_path_factory.mktemp("gateway"), text) as found:
            yield found
            assert found.end() == 0, found.everything
            assert found.left() == []


@pytest.fixture(scope="module")
def playing(running: Gateway) -> Iterator[Player]:
    """The released client."""
    with player(*OPENREWARD, running.url) as found:
        yield found


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_one_list_has_the_environments_of_every_kind_of_place(running: Gateway) -> None:
    assert httpx.get(f"{running.url}/list_environments").json() == list(EPISODES)


@pytest.mark.parametrize("name", EPISODES)
def test_a_released_client_and_ours_are_given_the_same(running: Gateway, playing: Player, name: str) -> None:
    seen = playing.play("episode", name, calls=EPISODES[name])
    theirs = [each["value"] for each in seen["outputs"]]
    with (
        Client(running.url) as client,
        client.environment(name).session(split="train", index=0) as session,
    ):
        prompt = [json.loads(block.model_dump_json()) for block in session.prompt()]
        ours = [session.call(tool, arguments) for tool, arguments in EPISODES[name]]
    assert [text_of(each) for each in seen["prompt"]] == [text_of(each) for each in prompt]
    for their, our in zip(theirs, ours, strict=True):
        assert (their["reward"], their["finished"]) == (our.reward, our.finished)
        blocks = [json.loads(block.model_dump_json()) for block in our.blocks]
        assert [text_of(each) for each in their["blocks"]] == [text_of(each) for each in blocks]
    assert theirs[-1]["finished"] is (name != "guessenvironment")


def text_of(block: dict[str, Any]) -> tuple[str, str]:
    """What the model sees of a block."""
    return block["type"], block.get("text") or block["data"]


async def test_a_stream_starts_before_its_tool_ends_in_a_container(running: Gateway, log: Log) -> None:
    """The tool waits for this very test, which waits for the first event."""
    session = {"X-Session-ID": f"stream-{log.path}"}
    async with httpx.AsyncClient(base_url=running.url, headers=session, timeout=30) as http:
        (await http.post("/create", json={"env_name": "scripted", "task_spec": {}})).raise_for_status()
        decoder, events = Decoder(), []
        body = {"name": "add_later", "input": {"gate": log.gate("end")}}
        async with http.stream("POST", "/scripted/call", json=body) as answer:
            async for piece in answer.aiter_raw():
                events += decoder.feed(piece)
                if events and events[-1].event == "task_id":
                    log.open("end")
        assert events[-1].event == "end"
        (await http.post("/delete")).raise_for_status()


async def test_a_container_killed_in_mid_call_is_reported_as_such_and_replaced(
    running: Gateway, playing: Player, log: Log
) -> None:
    spec = {"log": str(log.path)}
    never = {"gate": log.gate("never")}
    with Client(running.url) as client, ThreadPoolExecutor() as threads, ExitStack() as sessions:
        scripted = client.environment("scripted")

        def opened() -> Session:
            return sessions.enter_context(scripted.session(task_spec=spec))

        kept = opened()
        (victim,) = running.containers("scripted") - {place_of(kept)}
        theirs = threads.submit(
            playing.play, "episode", "scripted", by="task", spec=spec, calls=[["first", never]] * 2
        )
        await log.has("first+")  # in the other container: each has the next session when it has fewer
        lost = next(session for session in (opened(), opened()) if place_of(session) == victim)
        ours = threads.submit(lost.call, "first", never)
        going_on = threads.submit(kept.call, "first", {"gate": log.gate("kept")})
        await log.has("first+", 3)

        await asyncio.to_thread(docker_kill, victim)
        with pytest.raises(WorkerLost, match="signal 9"):
            await asyncio.to_thread(ours.result, 30)
        in_mid_call, after = (await asyncio.to_thread(theirs.result, 60))["outputs"]
        assert in_mid_call["type"] == "ToolFailed" and after["type"] == "SessionTerminatedError"
        assert "the container was ended by signal 9" in in_mid_call["text"] + after["reason"]
        log.open("kept")
        assert (await asyncio.to_thread(going_on.result, 30)).reward is None
        await asyncio.to_thread(
            until_true, lambda: place_of(opened()) not in (victim, place_of(kept)), timeout_s=30
        )
        assert len(running.containers("scripted")) == 2


def place_of(session: Session) -> str:
    """Id of the container where it lives."""
    found = re.search(r"'HOSTNAME': '([0-9a-f]{12})'", str(session.call("surroundings").blocks))
    assert found is not None
    return found[1]


def test_trl_plays_environments_in_containers_and_beside_them(running: Gateway) -> None:
    """As its trainer does: rows, an environment for each rollout, reset, tools as methods, rewards."""
    win = [["hint", {}], ["echo", {"text": "$target"}]]
    plans = [
        {"env_name": "echoenvironment", "num_tasks": 3, "calls": [win, [["echo", {"text": "no"}]], win]},
        {"env_name": "guessenvironment", "num_tasks": 2, "calls": [[["guess", {"number": 50}]]]},
    ]
    whole = [{"url": running.url, "split": "train", **plan} for plan in plans]
    driver = ROOT / "tests" / "interop" / "drivers" / "trl_spec.py"
    done = subprocess.run(
        [python_for("trl", TRL), driver, json.dumps(whole)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    echo, guess = json.loads(done.stdout.splitlines()[-1])
    assert [row["target"] for row in echo["rows"]] == ["hello", "world", "trl"]
    assert sorted(echo["tools"]) == ["echo", "hint"]
    assert "'hello'" in echo["episodes"][0]["prompt"]
    assert echo["scores"] == [1.0, 0.0, 1.0]
    assert [episode["finished"] for episode in echo["episodes"]] == [True, False, True]
    assert guess["episodes"][0]["rewards"][0] is not None


def test_a_training_goes_on_when_every_container_is_killed(running: Gateway) -> None:
    pytest.importorskip("datasets", reason="needs the extra 'trl'")
    from orsay_trl import EnvironmentSpec

    spec = EnvironmentSpec(running.url, env_name="scripted", num_tasks=1)
    environment: Any = spec.environment_factory()
    environment.reset(**spec.train_dataset[0])
    assert environment.add(by=1) == "1"
    killed = running.containers("scripted")
    for container in killed:
        docker_kill(container)
    assert environment.add(by=1) == "2", "the episode is played again up to here"
    assert environment.win() == "won"
    assert environment.episode.retried == ["worker_lost"]
    assert not killed & running.containers("scripted")
