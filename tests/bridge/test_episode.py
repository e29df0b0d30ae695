"""Episodes through what befalls them: lost workers, lost servers, limits, and ends in every state."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from orsay_client import errors
from orsay_trl import EnvironmentSpec, Episode

from ..support.bridge_server import EnvServer, serve_environments
from ..support.waiting import until_true

pytestmark = pytest.mark.process

ROW = {"task_split": "train", "task_index": 0}


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    folder = tmp_path_factory.mktemp("episodes")
    with serve_environments(
        folder, "Words", "Fickle", "Unseeded", "Broken", "Judged", call_time_limit_s=1
    ) as found:
        yield found


@dataclass(frozen=True)
class Idle:
    """An episode that nobody plays since then, on a server whose idle limit is 11 s."""

    server: EnvServer
    environment: Any
    since: float


@pytest.fixture(scope="module", autouse=True)
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Idle]:
    """It is left alone while other tests of this file run."""
    folder = tmp_path_factory.mktemp("idle")
    with serve_environments(folder, "Words", idle_limit_s=11) as env_server:
        spec = EnvironmentSpec(env_server.url, discover_task_tools=False, retries=0)
        environment: Any = spec.environment_factory()
        environment.reset(**ROW)
        environment.say(word="fig")
        yield Idle(env_server, environment, time.monotonic())
        spec.close()


@pytest.fixture
def spec(env_server: EnvServer) -> Iterator[EnvironmentSpec]:
    made = EnvironmentSpec(env_server.url, discover_task_tools=False)
    assert made.tools.names
    yield made
    made.close()


def _play(spec: EnvironmentSpec, work: Callable[[Episode], Awaitable[Any]], **row: Any) -> Episode:
    """An episode, opened and played by ``work``; not closed."""
    episode = spec.episode({**ROW, **row})

    async def play() -> None:
        await episode.open()
        await work(episode)

    spec.run(play())
    return episode


def _kill(episode: Episode) -> None:
    """Kill the worker whose process the call ``pid`` returned last."""
    pids = [found["pid"] for found in episode.metadata if found and "pid" in found]
    os.kill(pids[-1], signal.SIGKILL)


def _results(episode: Episode) -> list[Any]:
    return [(step.tool, dict(step.input), step.text) for step in episode.steps]


# Playing again


@pytest.mark.parametrize("place", range(4))
def test_an_episode_whose_worker_dies_ends_as_if_nothing_had_happened(
    env_server: EnvServer, spec: EnvironmentSpec, place: int
) -> None:
    plan: list[tuple[str, dict[str, Any]]] = [
        ("pid", {}),
        ("say", {"word": "pear"}),
        ("points", {"number": 0.5}),
        ("say", {}),  # refused
        ("say", {"word": "apple"}),
    ]

    async def through(episode: Episode, killed_after: int) -> None:
        for number, (tool, arguments) in enumerate(plan):
            reply = await episode.call(tool, arguments)
            if number == killed_after:
                _kill(episode)
        assert reply.finished

    calm = _play(spec, lambda episode: through(episode, 99))
    struck = _play(spec, lambda episode: through(episode, place))
    assert struck.retried == ["worker_lost"]
    assert struck.fault is None
    assert _results(struck) == _results(calm)
    assert (struck.rewards, struck.reward, struck.finished) == (calm.rewards, calm.reward, True)
    assert calm.rewards == [None, 0.0, 0.5, None, 1.0]


def test_a_worker_that_dies_in_a_call_is_replaced(spec: EnvironmentSpec, tmp_path: Path) -> None:
    async def through(episode: Episode) -> None:
        first = episode.sid
        await episode.call("say", {"word": "pear"})
        reply = await episode.call("die_once", {"marker": str(tmp_path / "died")})
        assert reply.content == "alive"
        assert episode.sid not in ("", first)
        assert (await episode.call("say", {"word": "fig"})).content == "wrong, heard ['pear', 'fig']"

    assert _play(spec, through).retried == ["worker_lost"]


def test_an_environment_that_answers_otherwise_cannot_be_played_again(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Fickle", discover_task_tools=False)

    async def through(episode: Episode) -> None:
        await episode.call("pid", {})
        await episode.call("look", {})
        _kill(episode)
        assert "will not be scored" in (await episode.call("say", {"word": "apple"})).text

    episode = _play(spec, through)
    assert (episode.fault, episode.reward, episode.finished) == ("diverged", None, False)
    assert "look" in episode.fault_message
    spec.close()


def test_an_environment_that_begins_otherwise_cannot_be_played_again(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Unseeded", discover_task_tools=False)

    async def through(episode: Episode) -> None:
        before = episode.observation
        await episode.call("pid", {})
        _kill(episode)
        await episode.call("say", {"word": "apple"})
        assert episode.observation == before

    assert _play(spec, through).fault == "diverged"
    spec.close()


def test_an_episode_is_lost_when_its_budget_is_used_up(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, retries=2, discover_task_tools=False)

    async def through(episode: Episode) -> None:
        await episode.call("points", {"number": 5})
        before = len(env_server.diary.lines("setup"))
        reply = await episode.call("die", {})
        assert "will not be scored" in reply.text
        assert len(env_server.diary.lines("setup")) == before + 2
        calls = len(env_server.diary.lines("call"))
        assert (await episode.call("look", {})).text == reply.text
        assert len(env_server.diary.lines("call")) == calls, "a lost episode was played on"

    episode = _play(spec, through)
    assert (episode.fault, episode.retried) == ("worker_lost", ["worker_lost"] * 2)
    assert (episode.reward, episode.finished, episode.sid) == (None, False, "")
    spec.close()


@pytest.mark.parametrize("retries", [0, 1])
def test_a_tool_that_breaks_loses_the_episode_at_once(env_server: EnvServer, retries: int) -> None:
    spec = EnvironmentSpec(env_server.url, retries=retries, discover_task_tools=False)
    episode = _play(spec, lambda episode: episode.call("fail", {}))
    assert (episode.fault, episode.retried, episode.reward) == ("tool_error", [], None)
    assert "the tool broke" in episode.fault_message
    spec.close()


def test_a_call_over_the_servers_limit_is_tried_again_and_then_lost(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, retries=1, discover_task_tools=False)
    episode = _play(spec, lambda episode: episode.call("sleep", {"seconds": 20}))
    assert (episode.fault, episode.retried) == ("time_limit", ["time_limit"])
    spec.close()


def test_a_call_over_the_specs_limit_is_lost_likewise(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, retries=0, call_timeout_s=0.1, discover_task_tools=False)
    episode = _play(spec, lambda episode: episode.call("sleep", {"seconds": 0.8}))
    assert (episode.fault, "0.1 s" in episode.fault_message) == ("time_limit", True)
    spec.close()


@pytest.mark.parametrize(("index", "fault"), [(0, "setup_error"), (1, "prompt_error")])
def test_an_environment_that_breaks_at_the_start_is_a_fault(
    env_server: EnvServer, index: int, fault: str
) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Broken", discover_task_tools=False)
    environment: Any = spec.environment_factory()
    assert environment.reset(task_split="train", task_index=index) == ""
    assert (environment.episode.fault, environment.reward) == (fault, None)
    assert "will not be scored" in environment.look()
    assert environment.reset(task_split="train", task_index=2)
    assert environment.look() == "here: x"
    spec.close()
    assert env_server.diary.open_sessions() == set() or _gone(env_server)


def _gone(env_server: EnvServer) -> bool:
    """Sessions whose worker died never wrote that they ended."""
    dead = {line["pid"] for line in env_server.diary.lines() if not Path(f"/proc/{line['pid']}").exists()}
    left = {line["key"] for line in env_server.diary.lines("setup") if line["pid"] not in dead}
    return not (env_server.diary.open_sessions() & left)


# Wrong requests are no faults


def test_a_wrong_key_or_task_is_raised(tmp_path: Path, env_server: EnvServer) -> None:
    with serve_environments(tmp_path, "Words", api_keys='["right"]') as locked:
        with pytest.raises(errors.Unauthorized):
            EnvironmentSpec(locked.url, api_key="wrong").environment_factory()
        spec = EnvironmentSpec(locked.url, api_key="right", discover_task_tools=False)
        environment = spec.environment_factory()
        assert environment.reset(**ROW)
        wrong = EnvironmentSpec(locked.url, api_key="wrong")
        wrong.__dict__["tools"] = spec.tools
        with pytest.raises(errors.Unauthorized):
            wrong.environment_factory().reset(**ROW)
        with pytest.raises(errors.BadRequest, match="77"):
            environment.reset(task_split="train", task_index=77)
        with pytest.raises(errors.BadRequest, match="nope"):
            environment.reset(task_split="nope", task_index=0)
        spec.close()
        wrong.close()


def test_a_tool_that_there_is_not_is_answered_in_words(spec: EnvironmentSpec) -> None:
    async def through(episode: Episode) -> None:
        reply = await episode.call("fly", {})
        assert "no tool 'fly'" in reply.text
        assert "say" in reply.text

    assert _play(spec, through).steps == []


# Servers that go away


def test_a_server_that_is_down_is_a_fault_and_one_that_comes_back_is_used(tmp_path: Path) -> None:
    with serve_environments(tmp_path, "Words") as env_server:
        spec = EnvironmentSpec(env_server.url, retries=0, request_tries=2, discover_task_tools=False)
        environment: Any = spec.environment_factory()
        environment.reset(**ROW)
        environment.points(number=1)
        env_server.process.signal(signal.SIGKILL)
        env_server.process.wait()
        environment.look()
        assert (environment.episode.fault, environment.reward) == ("connection_lost", None)
        assert environment.reset(**ROW) == ""
        assert (environment.episode.fault, environment.reward) == ("connection_lost", None)
        port = env_server.port
    with serve_environments(tmp_path, "Words", port=port):
        assert environment.reset(**ROW) == "Say the word: apple."
        assert environment.say(word="apple") == "right"
        assert environment.reward == 1.0
        spec.close()


def test_an_episode_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    with serve_environments(tmp_path, "Words") as env_server:
        spec = EnvironmentSpec(env_server.url, request_tries=2, discover_task_tools=False)
        environment: Any = spec.environment_factory()
        environment.reset(**ROW)
        environment.say(word="fig")
        env_server.process.signal(signal.SIGKILL)
        env_server.process.wait()
        port = env_server.port
    with serve_environments(tmp_path, "Words", port=port):
        assert environment.say(word="pear") == "wrong, heard ['fig', 'pear']"
        assert environment.episode.retried
        assert environment.episode.fault is None
        spec.close()


# The end, in every state


def test_an_episode_can_be_closed_in_every_state(env_server: EnvServer, spec: EnvironmentSpec) -> None:
    async def all_states() -> None:
        never = spec.episode(ROW)
        await never.close()
        with pytest.raises(errors.ClientClosed):
            await never.open()
        assert never.fault is None

        with pytest.raises(errors.ClientClosed):
            await spec.episode(ROW).call("look", {})

        opened = spec.episode(ROW)
        await opened.open()
        await asyncio.gather(opened.close(), opened.close())
        with pytest.raises(errors.ClientClosed):
            await opened.call("look", {})

        opening = spec.episode(ROW)
        work = asyncio.create_task(opening.open())
        await asyncio.sleep(0)
        await opening.close()
        with pytest.raises(errors.ClientClosed):
            await work

        calling = spec.episode(ROW)
        await calling.open()
        call = asyncio.create_task(calling.call("sleep", {"seconds": 0.6}))
        await asyncio.sleep(0.1)
        await calling.close()
        with pytest.raises(errors.ClientClosed):
            await call
        assert (calling.fault, calling.retried) == (None, [])

        lost = spec.episode(ROW)
        await lost.open()
        await lost.call("fail", {})
        await lost.close()
        assert "will not be scored" in (await lost.call("look", {})).text

        over = spec.episode(ROW)
        await over.open()
        assert (await over.call("say", {"word": "apple"})).finished
        assert "over" in (await over.call("look", {})).text
        await over.close()
        assert over.reward == 1.0

    spec.run(all_states())
    spec.close()
    assert _gone(env_server)


def test_an_episode_that_is_cancelled_leaves_no_session(env_server: EnvServer, spec: EnvironmentSpec) -> None:
    async def cancel() -> None:
        for pause in (0, 0.002, 0.005, 0.01, 0.02):
            episode = spec.episode(ROW)
            work = asyncio.create_task(episode.open())
            await asyncio.sleep(pause)
            work.cancel()
            await asyncio.wait([work])
            await episode.close()
        episode = spec.episode(ROW)
        await episode.open()
        work2 = asyncio.create_task(episode.call("sleep", {"seconds": 0.5}))
        await asyncio.sleep(0.05)
        work2.cancel()
        await asyncio.wait([work2])
        assert work2.cancelled()
        assert (await episode.call("look", {})).text == "here: apple"

    spec.run(cancel())
    spec.close()
    until_true(lambda: _gone(env_server))


def test_one_request_that_is_wrong_does_not_leave_the_others_open(
    env_server: EnvServer, spec: EnvironmentSpec
) -> None:
    with pytest.raises(errors.BadRequest, match="77"):
        spec.prepare([*[ROW] * 5, {**ROW, "task_index": 77}, *[ROW] * 5])
    spec.pool.close_episodes()
    assert spec.pool.open_episodes == 0
    spec.close()
    until_true(lambda: _gone(env_server))


def test_many_episodes_are_played_at_the_same_time(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, concurrency=40, discover_task_tools=False)
    rows = [{**ROW, "task_index": number % 8} for number in range(200)]
    words = [row["word"] for row in spec.train_dataset]
    opened = spec.prepare(rows)
    assert len({episode.sid for episode in opened}) == 200
    assert len({episode.id for episode in opened}) == 200
    taken = [spec.begin(row) for row in rows]
    assert set(taken) == set(opened)
    assert [episode.task.index for episode in taken] == [row["task_index"] for row in rows]

    async def play_all() -> None:
        await asyncio.gather(*(e.call("say", {"word": words[e.task.index]}) for e in taken[:190]))

    spec.run(play_all())
    assert [episode.reward for episode in taken] == [1.0] * 190 + [0.0] * 10
    spec.release(taken)
    spec.close()
    assert spec.live._pool is None
    assert _gone(env_server)


def test_calls_of_one_episode_keep_their_order(spec: EnvironmentSpec) -> None:
    async def through(episode: Episode) -> None:
        await asyncio.gather(*(episode.call("say", {"word": str(number)}) for number in range(20)))
        last = await episode.call("say", {"word": "apple"})
        assert last.finished

    episode = _play(spec, through)
    assert [step.input["word"] for step in episode.steps] == [*map(str, range(20)), "apple"]


def test_an_idle_episode_outlives_the_servers_idle_limit(idle: Idle) -> None:
    time.sleep(max(0.0, idle.since + 13 - time.monotonic()))  # over the limit; a ping is sent every 10 s
    assert idle.environment.say(word="apple") == "right"
    assert (idle.environment.episode.retried, len(idle.server.diary.lines("setup"))) == ([], 1)


def test_what_is_sent_carries_the_rollouts_id(tmp_path: Path) -> None:
    with serve_environments(tmp_path, "Words") as env_server:
        spec = EnvironmentSpec(env_server.url, run="my-run", discover_task_tools=False)
        environment: Any = spec.environment_factory()
        environment.reset(**ROW)
        episode = environment.episode
        assert len(episode.id) == 32
        sid = episode.sid
        spec.close()
        until_true(lambda: bool(env_server.process.events("session_ended")))
        [line] = env_server.process.events("session_ended")
        assert line["session"] == sid
        assert f'"rollout":"{episode.id}"' in line["run"]
        assert '"run":"my-run"' in line["run"]
