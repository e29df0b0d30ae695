"""Reward functions for a trainer, on real environments."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orsay_trl import EnvironmentSpec, TooManyFaults, discounted
from orsay_trl.trainer.rewards import candidate

from ..support.bridge_server import TRAINING, EnvServer, serve_environments

pytest.importorskip("trl", reason="needs the extra 'trl'")
from .players import ConcurrentScripted, PlainScripted, call, make_trainer
from .rolling import logged

pytestmark = [pytest.mark.process, *TRAINING]

ROW = {"task_split": "train", "task_index": 0}


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(tmp_path_factory.mktemp("scoring"), "Words", "Judged", "Broken") as found:
        yield found


@pytest.mark.parametrize(
    ("policy", "reward"),
    [
        ("last", -1.0),
        ("sum", 2.5),
        ("max", 3.0),
        ("mean", 2.5 / 3),
        (discounted(0.5), 3.0 * 0.5 + 0.5 * 0.25 - 1.0 * 0.125),
        (lambda episode: float(len(episode.steps)), 4.0),
        (lambda episode: None, 0.25),
    ],
)
def test_an_episode_is_worth_what_the_policy_says(env_server: EnvServer, policy: Any, reward: float) -> None:
    spec = EnvironmentSpec(env_server.url, reward=policy, unscored=0.25)
    environment: Any = spec.environment_factory()
    environment.reset(**ROW)
    environment.look()
    for number in (3, 0.5, -1):
        environment.points(number=number)
    assert spec.reward_funcs(environments=[environment]) == [pytest.approx(reward)]
    spec.close()


@pytest.mark.parametrize("unscored", [0.0, -0.5, None])
def test_an_episode_without_a_score_is_worth_what_was_configured(
    env_server: EnvServer, unscored: float | None
) -> None:
    spec = EnvironmentSpec(env_server.url, unscored=unscored)
    environment: Any = spec.environment_factory()
    environment.reset(**ROW)
    assert spec.reward_funcs(environments=[environment]) == [unscored]
    environment.look()
    assert spec.reward_funcs(environments=[environment]) == [unscored]
    environment.points(number=0)
    assert spec.reward_funcs(environments=[environment]) == [0.0]
    spec.close()


def test_a_reward_is_given_once_where_both_ways_are_open(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url)
    environment: Any = spec.environment_factory()
    environment.reset(**ROW)
    environment.say(word="apple")
    assert environment.get_reward() == 1.0
    assert spec.reward_funcs(environments=[environment]) == [1.0]
    assert environment.get_reward() is None
    environment.reset(**ROW)
    assert environment.get_reward() == 0.0
    spec.close()


def _say(text: str) -> str:
    return "Done." if "<tool_response>" in text else call("say", word="apple")


@pytest.mark.parametrize("cls", [PlainScripted, ConcurrentScripted])
@pytest.mark.parametrize("with_function", [True, False])
def test_training_counts_a_reward_once(
    env_server: EnvServer, tmp_path: Path, cls: type, with_function: bool
) -> None:
    spec = EnvironmentSpec(env_server.url, indices=[0])
    more: dict[str, Any] = {} if with_function else {"reward_funcs": None}
    trainer = make_trainer(cls, tmp_path, player=_say, spec=spec, batch=2, **more)
    trainer.train()
    spec.close()
    assert logged(trainer, "reward") == [1.0]


@pytest.mark.parametrize("cls", [PlainScripted, ConcurrentScripted])
def test_a_function_of_ones_own_can_replace_the_environments_reward(
    env_server: EnvServer, tmp_path: Path, cls: type
) -> None:
    def own(environments: Any, **_: Any) -> list[float]:
        return [10.0 * environment.reward for environment in environments]

    spec = EnvironmentSpec(env_server.url, indices=[0], get_reward=False)
    trainer = make_trainer(cls, tmp_path, player=_say, spec=spec, batch=2, reward_funcs=own)
    trainer.train()
    spec.close()
    assert logged(trainer, "reward") == [10.0]


def test_one_lost_rollout_of_a_small_batch_stops_nothing(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Broken", retries=0, discover_task_tools=False)
    place: Any = spec.environment_factory()
    for index in (0, 2, 2):
        place.reset(task_split="train", task_index=index)
        assert spec.reward_funcs(environments=[place]) == [None if index == 0 else 0.0]
    with pytest.raises(TooManyFaults, match="6 of 8"):
        for _ in range(5):
            place.reset(task_split="train", task_index=0)
            spec.reward_funcs(environments=[place])
    spec.close()


# Faults


def _lose(environment: Any) -> None:
    """Kill the worker of an episode that has no retries left."""
    os.kill(environment.episode.metadata[0]["pid"], signal.SIGKILL)
    environment.look()


def test_a_lost_rollout_has_no_reward_whatever_the_policy(env_server: EnvServer) -> None:
    for policy in ("last", "sum", lambda episode: 5.0):
        spec = EnvironmentSpec(env_server.url, retries=0, reward=policy, max_fault_share=1)
        environment: Any = spec.environment_factory()
        environment.reset(**ROW)
        environment.pid()
        environment.points(number=1)
        _lose(environment)
        assert environment.episode.fault == "worker_lost"
        assert (environment.reward, environment.get_reward()) == (None, None)
        assert spec.reward_funcs(environments=[environment]) == [None]
        spec.close()


def test_too_many_faults_stop_training_and_say_why(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Broken", retries=0, discover_task_tools=False)
    places: list[Any] = [spec.environment_factory() for _ in range(4)]
    for place, index in zip(places, (0, 0, 2, 2), strict=True):
        place.reset(task_split="train", task_index=index)
    assert spec.reward_funcs(environments=places) == [None, None, 0.0, 0.0], (
        "half of them is not more than half"
    )
    places[2].reset(task_split="train", task_index=1)
    with pytest.raises(TooManyFaults, match=r"3 of 4 .*2 setup_error, 1 prompt_error.*broke") as caught:
        spec.reward_funcs(environments=places)
    assert "0.5" in str(caught.value)
    spec.close()


def test_a_trainer_without_batches_is_stopped_too(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Broken", retries=0, discover_task_tools=False)
    place: Any = spec.environment_factory()
    for _ in range(7):
        place.reset(task_split="train", task_index=0)
        assert place.get_reward() is None
    place.reset(task_split="train", task_index=0)
    with pytest.raises(TooManyFaults, match="8 of 8"):
        place.get_reward()
    spec.close()


# Groups


def _said(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}]


def _play_group(
    env_server: EnvServer, texts: list[str], indices: list[int], **more: Any
) -> tuple[Any, list[Any], Any]:
    spec = EnvironmentSpec(env_server.url, env_name="Judged", retries=0, max_fault_share=1, **more)
    places: list[Any] = [spec.environment_factory() for _ in texts]
    prompts = []
    for place, index in zip(places, indices, strict=True):
        prompts.append([{"role": "user", "content": place.reset(task_split="train", task_index=index)}])
    return spec, places, {"prompts": prompts, "completions": [_said(text) for text in texts]}


def test_an_environment_compares_the_rollouts_of_each_task(env_server: EnvServer) -> None:
    before = len(env_server.diary.lines("group"))
    spec, places, played = _play_group(env_server, ["a", "bbb", "cc", "dddd", "e", "ff"], [0, 0, 0, 1, 1, 1])
    scores = spec.group_reward(environments=places, num_generations=3, **played)
    assert scores == [1.0, 3.0, 2.0, 4.0, 1.0, 2.0]
    groups = env_server.diary.lines("group")[before:]
    assert [line["texts"] for line in groups] == [["a", "bbb", "cc"], ["dddd", "e", "ff"]]
    assert groups[0]["roles"][0] == ["user", "assistant"]
    assert spec.reward_funcs(environments=places, **played) == [0.0] * 6, "scoring a group ended an episode"
    spec.close()


def test_a_group_that_cannot_be_scored_is_left_out_alone(env_server: EnvServer) -> None:
    spec, places, played = _play_group(env_server, ["uncomparable", "b", "cc", "ddd"], [0, 0, 1, 1])
    assert spec.group_reward(environments=places, num_generations=2, **played) == [None, None, 2.0, 3.0]
    spec.close()


def test_a_lost_rollout_takes_no_part_in_its_group(env_server: EnvServer) -> None:
    spec, places, played = _play_group(env_server, ["a", "bbb", "cc"], [0, 0, 0])
    places[0].episode.mark_lost("worker_lost", "for this test")
    assert spec.group_reward(environments=places, num_generations=3, **played) == [None, 3.0, 2.0]
    assert env_server.diary.lines("group")[-1]["texts"] == ["bbb", "cc"]
    for place in places:
        place.episode.mark_lost("worker_lost", "for this test")
    assert spec.group_reward(environments=places, num_generations=3, **played) == [None] * 3
    spec.close()


def test_two_groups_of_one_task_are_compared_each_for_itself(env_server: EnvServer) -> None:
    before = len(env_server.diary.lines("group"))
    spec, places, played = _play_group(env_server, ["a", "bb", "ccc", "dddd"], [0, 0, 0, 0])
    places[2].episode.mark_lost("worker_lost", "for this test")
    assert spec.group_reward(environments=places, num_generations=2, **played) == [1.0, 2.0, None, 4.0]
    assert [line["texts"] for line in env_server.diary.lines("group")[before:]] == [["a", "bb"], ["dddd"]]
    spec.close()


def test_groups_of_unknown_size_are_not_guessed(env_server: EnvServer) -> None:
    spec, places, played = _play_group(env_server, ["a", "bb"], [0, 0])
    for size in (None, 0, True, ["a", "column", "of", "tasks"]):
        with pytest.raises(ValueError, match="num_generations=…"):
            spec.group_reward(environments=places, num_generations=size, **played)
    with pytest.raises(ValueError, match=r"2 rollouts in each of 1 processes are no whole groups of 3"):
        spec.group_reward(environments=places, num_generations=3, **played)
    spec.close()


def test_a_group_of_several_tasks_is_refused(env_server: EnvServer) -> None:
    spec, places, played = _play_group(env_server, ["a", "bb", "c", "d"], [0, 0, 0, 1])
    with pytest.raises(ValueError, match=r"group 1 of the batch plays 2 tasks: .*index=0.*index=1"):
        spec.group_reward(environments=places, num_generations=2, **played)
    spec.close()


class _Served:
    """What the reward function reads of a trainer with vLLM as a server."""

    use_vllm, vllm_mode = True, "server"
    num_generations, num_generations_eval = 2, 3

    def log_metric(self, name: str, value: float) -> None:
        """As TRL's."""


def test_a_prompt_counts_for_its_own_group_alone(env_server: EnvServer) -> None:
    spec, places, _ = _play_group(env_server, ["a"] * 6, [0] * 6, attach=False)
    spec.close()
    for place in (places[0], places[5]):  # the first group has lost the prompt that counts, the last has not
        place.episode._opened, place.episode._observation = False, ""
        place.episode.mark_lost("setup_error", "for this test")
    spec.reward_funcs(environments=places, log_metric=_Served().log_metric)
    faults = [place.episode.fault for place in places]
    assert faults == ["setup_error", "no_prompt", None, None, None, "setup_error"]


def test_an_environment_without_group_scoring_says_so(env_server: EnvServer) -> None:
    from orsay_client.errors import Unsupported

    spec = EnvironmentSpec(env_server.url)
    place: Any = spec.environment_factory()
    prompt = [{"role": "user", "content": place.reset(**ROW)}]
    with pytest.raises(Unsupported):
        spec.group_reward(environments=[place], prompts=[prompt], completions=[_said("x")], num_generations=1)
    with pytest.raises(ValueError, match="environments"):
        spec.group_reward(prompts=[prompt], completions=[_said("x")])
    spec.close()


@pytest.mark.parametrize("cls", [PlainScripted, ConcurrentScripted])
def test_training_with_group_scores(env_server: EnvServer, tmp_path: Path, cls: type) -> None:
    texts = iter(["yes", "no way", "yes", "maybe"] * 10)
    spec = EnvironmentSpec(env_server.url, env_name="Judged", indices=[0])
    trainer = make_trainer(
        cls,
        tmp_path,
        player=lambda text: next(texts),
        spec=spec,
        batch=4,
        generations=4,
        reward_funcs=[spec.reward_funcs, spec.group_reward],
    )
    trainer.train()
    spec.close()
    assert logged(trainer, "rewards/environment_reward/mean") == [0.5]
    assert logged(trainer, "rewards/group_reward/mean") == [(3 + 6 + 3 + 5) / 4]
    assert logged(trainer, "reward") == [0.5 + 17 / 4]


def test_a_rollout_becomes_messages_of_the_standard(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Judged")
    place: Any = spec.environment_factory()
    place.reset(**ROW)
    place.hint()
    one = {"type": "function", "function": {"name": "hint", "arguments": {}}}
    two = {"type": "function", "id": "own", "function": {"name": "hint", "arguments": '{"a": 1}'}}
    completion: list[dict[str, Any]] = [
        {"role": "assistant", "content": "Let me see.", "tool_calls": [one, two]},
        {"role": "tool", "name": "hint", "content": "yes"},
        {"role": "tool", "name": "hint", "content": "yes too"},
        {"role": "assistant", "content": "yes"},
    ]
    found = candidate([{"role": "user", "content": "Q"}], completion, place.episode)
    assert [message.role for message in found.messages] == ["user", "assistant", "user", "assistant"]
    asked, answered = found.messages[1].blocks, found.messages[2].blocks
    assert [block.type for block in asked] == ["text", "tool_call", "tool_call"]
    assert [block.tool_call_id for block in answered] == [block.id for block in asked[1:]]  # type: ignore[union-attr]
    assert asked[2].input == {"a": 1}  # type: ignore[union-attr]
    assert found.metadata == {"rollout": place.episode.id, "reward": 0.0}
    spec.close()
