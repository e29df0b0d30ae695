"""Environments with one free-text action, played without a single tool call."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

from orsay_trl import EnvironmentSpec
from orsay_trl.rollout.rollout_func import reward_func, vllm_rollout_func
from orsay_trl.rollout.text import merged
from orsay_trl.testing import tiny_model as tiny

from ..support.bridge_server import TRAINING, EnvServer, serve_environments
from .rolling import ScriptedSampler, grpo, logged, smallest
from .templates import chat

pytestmark = [pytest.mark.process, *TRAINING]

ECHO = "envs/echo/echo_env/env.py:EchoEnvironment"


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(tmp_path_factory.mktemp("text"), "Words", "Judged", workers=2) as found:
        yield found


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(tmp_path_factory.mktemp("echo"), target=ECHO) as found:
        yield found


def play(
    folder: Path,
    spec: EnvironmentSpec,
    player: Any,
    *,
    tokenizer: Any = None,
    tasks: int = 1,
    steps: int = 0,
    arguments: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Any, Any, ScriptedSampler]:
    """A batch by a trainer, or ``steps`` of its training: what it returned, the trainer and the sampler."""
    tokenizer = tokenizer if tokenizer is not None else tiny.tokenizer()
    model = smallest(tokenizer)
    sampler = ScriptedSampler(model, tokenizer, player)
    function = vllm_rollout_func(spec, sampler=sampler, **options)
    trainer = grpo(
        folder,
        model=model,
        tokenizer=tokenizer,
        steps=max(steps, 1),
        arguments=arguments,
        train_dataset=spec.rollout_dataset,
        rollout_func=function,
        reward_funcs=reward_func,
    )
    out = None
    if steps:
        trainer.train()
    else:
        out = function([spec.rollout_dataset[at]["prompt"] for at in range(tasks)], trainer)
    spec.close()
    return out, trainer, sampler


def show(observation: Any, step: int, history: list[str]) -> str:
    return f"[{step}] {observation}"


def test_a_text_goes_to_the_one_tool_that_takes_a_text(echo: EnvServer, tmp_path: Path) -> None:
    seen: list[tuple[Any, int, list[str]]] = []

    def builder(observation: Any, step: int, history: list[str]) -> str:
        seen.append((observation, step, list(history)))
        return show(observation, step, history)

    def player(text: str) -> str:
        return "<think>\n\n</think>\n\nwrong" if "[2]" not in text else "hello"

    out, trainer, sampler = play(
        tmp_path,
        EnvironmentSpec(echo.url),
        player,
        prompt_builder=builder,
        action_parser=lambda text: text.rpartition("</think>")[2].strip(),
    )
    assert (out["env_reward"], out["stop_reason"], out["turns"]) == ([1.0], ["finished"], [2])
    assert [(step, history) for _, step, history in seen] == [(1, []), (2, ["Step 1: wrong -> reward +0.00"])]
    assert seen[0][0].startswith("Win by calling the tool `echo`")
    assert seen[1][0] == "no match (got 'wrong')"
    completion = trainer.processing_class.decode(out["completion_ids"][0])
    assert "[2] no match (got 'wrong')" in completion and "tool" not in completion
    first, second = sampler.turns
    assert second[0][: len(first[0]) + len(first[1])] == first[0] + first[1]
    assert len(out["completion_ids"][0]) == len(out["env_mask"][0]) == len(out["logprobs"][0])
    assert out["env_mask"][0][-1] == 1 and 0 in out["env_mask"][0]


def test_a_text_goes_to_the_terminal_tool(env_server: EnvServer, tmp_path: Path) -> None:
    out, _, _ = play(
        tmp_path,
        EnvironmentSpec(env_server.url, env_name="judged"),
        lambda text: str(re.findall(r"answer is (\w+)", text)[-1]),
        tasks=2,
        prompt_builder=show,
        action_parser=str.strip,
    )
    assert (out["env_reward"], out["stop_reason"]) == ([1.0, 1.0], ["finished"] * 2)


def test_an_action_may_name_its_tool(env_server: EnvServer, tmp_path: Path) -> None:
    out, _, _ = play(
        tmp_path,
        EnvironmentSpec(env_server.url),
        lambda text: "points 0.5" if "[2]" not in text else "say apple",
        prompt_builder=show,
        action_parser=lambda text: (
            ("points", {"number": 0.5}) if text.startswith("points") else ("say", {"word": text.split()[1]})
        ),
    )
    assert out["env_reward"] == [1.0]
    assert [step.tool for step in out["episode"][0].steps] == ["points", "say"]


def test_a_text_that_is_no_action_is_answered_and_counted(env_server: EnvServer, tmp_path: Path) -> None:
    def parser(text: str) -> Any:
        if text != "say apple":
            raise ValueError("write: say WORD")
        return "say", {"word": "apple"}

    histories: list[list[str]] = []

    def builder(observation: Any, step: int, history: list[str]) -> str:
        histories.append(list(history))
        return show(observation, step, history)

    out, trainer, _ = play(
        tmp_path,
        EnvironmentSpec(env_server.url),
        lambda text: "say apple" if "Error" in text else "apple!",
        prompt_builder=builder,
        action_parser=parser,
    )
    assert out["env_reward"] == [1.0]
    assert "Error: write: say WORD" in trainer.processing_class.decode(out["completion_ids"][0])
    assert trainer._pending_metrics["rollout/unreadable_calls"] == [1.0]
    assert len(out["episode"][0].steps) == 1


@pytest.mark.parametrize("action", ["apple", {"word": "apple"}, 7])
def test_an_action_that_does_not_name_a_tool_stops_the_training(
    env_server: EnvServer, tmp_path: Path, action: Any
) -> None:
    with pytest.raises(TypeError, match="tool name, arguments"):
        play(
            tmp_path,
            EnvironmentSpec(env_server.url),
            lambda _: "x",
            prompt_builder=show,
            action_parser=lambda _: action,
        )


def test_steps_are_limited(env_server: EnvServer, tmp_path: Path) -> None:
    out, _, sampler = play(
        tmp_path,
        EnvironmentSpec(env_server.url),
        lambda _: "x",
        max_turns=3,
        prompt_builder=show,
        action_parser=lambda _: ("look", {}),
    )
    assert (out["stop_reason"], len(sampler.turns), out["env_mask"][0][-1]) == (["max_turns"], 3, 1)


def test_a_template_without_tools_will_do(echo: EnvServer, tmp_path: Path) -> None:
    here = chat("gemma3_training")
    out, _, _ = play(
        tmp_path,
        EnvironmentSpec(echo.url),
        lambda text: "hello" if "[2]" in text else "no",
        tokenizer=here.tokenizer,
        arguments={"chat_template_kwargs": {}},
        prompt_builder=show,
        action_parser=str.strip,
    )
    assert out["env_reward"] == [1.0]


def test_two_steps_of_training_without_tool_calls(echo: EnvServer, tmp_path: Path) -> None:
    numbers = iter(range(1000))

    def player(text: str) -> str:
        word = re.findall(r"text='(\w+)'", text)[-1]
        return word if next(numbers) % 2 else "no"

    _, trainer, _ = play(
        tmp_path,
        EnvironmentSpec(echo.url),
        player,
        steps=2,
        max_turns=1,
        prompt_builder=show,
        action_parser=str.strip,
    )
    assert all(map(math.isfinite, logged(trainer, "loss")))
    assert max(logged(trainer, "sampling/parity")) < 1e-3
    assert logged(trainer, "rewards/reward_func/mean") == [0.5, 0.5]


def test_an_observation_is_added_to_the_last_message_of_the_user() -> None:
    assert merged("Go.", "North") == [{"role": "user", "content": "Go.\n\nNorth"}]
    assert merged([{"role": "user", "content": "", "task": "{}"}], "North") == [
        {"role": "user", "content": "North"}
    ]
    system = {"role": "system", "content": "Be brief."}
    assert merged([system], "North") == [system, {"role": "user", "content": "North"}]
    parts = [{"type": "text", "text": "Go."}]
    assert merged([{"role": "user", "content": parts}], "") == [{"role": "user", "content": "Go."}]
