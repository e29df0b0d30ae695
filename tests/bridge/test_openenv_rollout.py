"""Eval Protocol's function on today's TRL, over OpenEnv's own echo server and clients."""

from __future__ import annotations

import inspect
import itertools
import math
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")
pytest.importorskip("openenv", reason="needs the extra 'openenv'")

from datasets import Dataset
from orsay_trl import TooManyFaults, create_openenv_vllm_rollout_func
from orsay_trl.rollout.openenv_client import ClientMaker
from orsay_trl.rollout.rollout_func import reward_func
from orsay_trl.rollout.sync import DiskSync
from orsay_trl.testing import tiny_model as tiny
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..support.bridge_server import TRAINING
from ..support.model_server.processes import serve_model
from .parrot import Parrot
from .rolling import ScriptedSampler, chance, grpo, hesitant, logged, smallest

pytestmark = [
    pytest.mark.process,
    *TRAINING,
    pytest.mark.timeout(300),
]  # the import of openenv alone takes seconds

# Eval Protocol 0.3.33, eval_protocol.pytest.integrations.openenv_trl_vllm
EVAL_PROTOCOLS = {
    "env_factory": inspect.Parameter.empty,
    "prompt_builder": inspect.Parameter.empty,
    "action_parser": inspect.Parameter.empty,
    "vllm_base_url": "http://localhost:8000",
    "vllm_model": "Qwen/Qwen2.5-7B",
    "max_steps": 8,
    "completion_params": None,
    "concurrency": None,
    "processor_kwargs": None,
    "env_path": None,
    "env_client_cls": None,
    "tasks": None,
    "task_var": None,
    "miniwob_url": None,
    "docker_image": "browsergym-env:latest",
    "env_base_url": None,
    "request_timeout_s": 15.0,
    "default_headers": None,
    "provider": None,
    "docker_port": None,
    "env_vars": None,
    "benchmark": "miniwob",
    "headless": True,
    "viewport_width": 1280,
    "viewport_height": 720,
    "timeout_ms": 10000,
}


def build(observation: Any, step: int, history: list[str]) -> str:
    return f"[{step}] heard: {observation.echoed_message} {history}"


def dataset(rows: int = 4) -> Any:
    """As users of Eval Protocol have it: prompts that are plain texts."""
    return Dataset.from_dict({"prompt": [f"Say something long, number {row}." for row in range(rows)]})


def trained(folder: Path, player: Any, function: Any, **more: Any) -> tuple[Any, ScriptedSampler]:
    """A trainer, whose sampler follows a script where ``player`` is given."""
    tokenizer: Any = tiny.tokenizer()
    model = smallest(tokenizer)
    sampler = ScriptedSampler(model, tokenizer, player)
    made = function(sampler)
    trainer = grpo(
        folder,
        model=model,
        tokenizer=tokenizer,
        train_dataset=dataset(),
        rollout_func=made,
        reward_funcs=reward_func,
        **more,
    )
    return trainer, sampler


def test_the_arguments_are_eval_protocols() -> None:
    ours = inspect.signature(create_openenv_vllm_rollout_func).parameters
    found = {name: parameter.default for name, parameter in ours.items()}
    assert {name: found.get(name, "missing") for name in EVAL_PROTOCOLS} == EVAL_PROTOCOLS
    assert found.keys() - EVAL_PROTOCOLS.keys() == {"processor_cls", "sampler", "sync", "max_fault_share"}
    assert list(found)[:6] == list(EVAL_PROTOCOLS)[:6], "positional arguments in another order"


@pytest.mark.parametrize("kind", ["asynchronous", "synchronous", "class"])
def test_episodes_are_played_by_clients_of_every_kind(parrot: Parrot, tmp_path: Path, kind: str) -> None:
    factories = {
        "asynchronous": {"env_factory": lambda: parrot.client(base_url=parrot.url)},
        "synchronous": {"env_factory": lambda: parrot.client(base_url=parrot.url).sync()},
        "class": {"env_factory": None, "env_client_cls": parrot.client, "env_base_url": parrot.url},
    }

    def make(sampler: Any) -> Any:
        return create_openenv_vllm_rollout_func(
            **factories[kind],
            prompt_builder=build,
            action_parser=lambda text: parrot.action(message=text),
            max_steps=3,
            completion_params={"system_prompt": "You are a parrot."},
            sampler=sampler,
        )

    numbers = itertools.count()
    trainer, sampler = trained(tmp_path, lambda _: "ab" * (next(numbers) % 5 + 1), make)
    out = trainer.rollout_func(["One.", "Two.", "Three."], trainer)
    for place in range(3):
        ids, mask, logprobs = (out[name][place] for name in ("completion_ids", "env_mask", "logprobs"))
        assert len(ids) == len(mask) == len(logprobs)
        completion = trainer.processing_class.decode([t for t, mine in zip(ids, mask, strict=True) if mine])
        words = [word for word in completion.split("<|im_end|>") if word]
        assert out["step_rewards"][place] == pytest.approx([len(word) / 10 for word in words])
        assert out["env_reward"][place] == pytest.approx(sum(out["step_rewards"][place]))
        text = trainer.processing_class.decode(ids)
        assert f"[2] heard: {words[0]}" in text and f"[3] heard: {words[1]}" in text
        assert f"-> reward +{len(words[0]) / 10:.2f}" in text
    prompts = [trainer.processing_class.decode(ids) for ids in out["prompt_ids"]]
    assert "Two.\n\n[1] heard: Parrot Env environment ready! []" in prompts[1]
    assert all("You are a parrot." in prompt for prompt in prompts)
    assert out["stop_reason"] == ["max_turns"] * 3
    assert len(sampler.turns) == 9


def test_two_steps_of_training_on_the_length_of_the_text(parrot: Parrot, tmp_path: Path) -> None:
    numbers = itertools.count()

    def make(sampler: Any) -> Any:
        return create_openenv_vllm_rollout_func(
            lambda: parrot.client(base_url=parrot.url),
            build,
            lambda text: parrot.action(message=text),
            max_steps=2,
            sampler=sampler,
        )

    trainer, _ = trained(tmp_path, lambda _: "x" * (next(numbers) % 7 + 1), make)
    trainer.train()
    assert len(logged(trainer, "loss")) == 2 and all(map(math.isfinite, logged(trainer, "loss")))
    assert max(logged(trainer, "grad_norm")) > 0
    assert max(logged(trainer, "sampling/parity")) < 1e-3
    assert logged(trainer, "env/faults") == [0.0, 0.0]


def test_two_steps_of_training_on_a_vllm_server(parrot: Parrot, model_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model_folder, tmp_path / "served"))
    hesitant(AutoModelForCausalLM.from_pretrained(folder), 0.1).save_pretrained(folder)
    with serve_model(folder) as served:
        trainer = grpo(
            tmp_path,
            model=AutoModelForCausalLM.from_pretrained(folder),
            tokenizer=AutoTokenizer.from_pretrained(folder),
            arguments={"max_completion_length": 96},
            train_dataset=dataset(),
            rollout_func=create_openenv_vllm_rollout_func(
                lambda: parrot.client(base_url=parrot.url),
                build,
                lambda text: parrot.action(message=text or "-"),
                served.base_url,
                max_steps=2,
                completion_params={"max_tokens": 20},
                sync=DiskSync(folder, served.base_url),
            ),
            reward_funcs=[reward_func, chance],
        )
        trainer.train()
    assert max(logged(trainer, "grad_norm")) > 0
    assert max(logged(trainer, "sampling/parity")) < 1e-3
    assert min(logged(trainer, "rewards/reward_func/mean")) > 0


def test_an_environment_that_fails_costs_its_rollout(parrot: Parrot, tmp_path: Path) -> None:
    clients = itertools.count()

    def factory() -> Any:
        gone = next(clients) in (0, 2, 3)  # one comes up at the second attempt
        return parrot.client(base_url="http://127.0.0.1:9" if gone else parrot.url)

    def make(sampler: Any) -> Any:
        return create_openenv_vllm_rollout_func(
            factory,
            build,
            lambda text: object() if text == "bad" else parrot.action(message=text),
            max_steps=1,
            concurrency=1,
            sampler=sampler,
            max_fault_share=0.5,
        )

    trainer, _ = trained(tmp_path, lambda text: "bad" if "Two." in text else "good", make)
    out = trainer.rollout_func(["One.", "Two."], trainer)
    assert out["fault"] == [None, "environment_error"]
    assert out["env_reward"] == [pytest.approx(0.4), None]
    assert set(out["env_mask"][1]) == {0} and set(out["logprobs"][1]) == {0.0}


def test_too_many_faults_stop_the_training(parrot: Parrot, tmp_path: Path) -> None:
    def make(sampler: Any) -> Any:
        return create_openenv_vllm_rollout_func(
            lambda: parrot.client(base_url="http://127.0.0.1:9"), build, str, sampler=sampler
        )

    trainer, sampler = trained(tmp_path, lambda _: "x", make)
    with pytest.raises(TooManyFaults, match="connection_lost"):
        trainer.rollout_func(["One.", "Two."], trainer)
    assert sampler.turns == []


def test_tasks_reach_the_containers_by_group_and_turn_about(parrot: Parrot, tmp_path: Path) -> None:
    """There is no container engine here: what would start is noted, and the server takes its place."""
    started: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    class Recorded(parrot.client):  # type: ignore[name-defined, misc]  # made by openenv init
        @classmethod
        async def from_docker_image(cls, image: str, provider: Any = None, **options: Any) -> Any:
            started.append((image, options.pop("env_vars"), {"provider": provider, **options}))
            return parrot.client(base_url=parrot.url)

    def make(sampler: Any) -> Any:
        return create_openenv_vllm_rollout_func(
            None,
            build,
            lambda text: parrot.action(message=text),
            max_steps=1,
            concurrency=1,
            env_client_cls=Recorded,
            tasks=["click", "type"],
            task_var="TASK",
            docker_image="browsergym-env:7",
            docker_port=8123,
            env_vars={"COLOUR": "red"},
            miniwob_url="http://miniwob",
            sampler=sampler,
        )

    trainer, _ = trained(tmp_path, lambda _: "x", make)
    trainer.rollout_func(["One."] * 4, trainer)  # two groups of two
    trainer.rollout_func(["One."] * 4, trainer)
    assert [variables["TASK"] for _, variables, _ in started] == ["click"] * 2 + ["type"] * 4 + ["click"] * 2
    image, variables, options = started[0]
    assert (image, options) == ("browsergym-env:7", {"provider": None, "port": 8123})
    assert variables["COLOUR"] == "red" and variables["MINIWOB_URL"] == "http://miniwob"
    assert variables["BROWSERGYM_VIEWPORT_WIDTH"] == "1280"


def test_what_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="env_factory, or env_client_cls"):
        create_openenv_vllm_rollout_func(None, build, str)
    with pytest.raises(ValueError, match="task_var"):
        ClientMaker(env_factory=dict, tasks=["one"])
    with pytest.raises(ValueError, match="processor_cls"):
        create_openenv_vllm_rollout_func(dict, build, str, processor_cls=dict)


def test_the_function_can_be_pickled(parrot: Parrot) -> None:
    function = create_openenv_vllm_rollout_func(
        None, build, str, env_client_cls=dict, env_base_url=parrot.url, sync=False
    )
    copy = pickle.loads(pickle.dumps(function))
    assert copy.settings == function.settings


def test_an_evaluation_test_scores_episodes(
    parrot: Parrot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("eval_protocol", reason="pip install eval-protocol (large, and no extra of ours)")
    (tmp_path / "parrot_evaluation.py").write_text(
        "from eval_protocol.models import EvaluateResult, EvaluationRow\n"
        "from eval_protocol.pytest import evaluation_test\n"
        "from eval_protocol.pytest.openenv_rollout_processor import OpenEnvRolloutProcessor\n"
        "from parrot_env.client import ParrotEnv\n"
        "@evaluation_test(\n"
        "    input_messages=[[]], completion_params=[{'model': 'none'}],\n"
        "    rollout_processor=OpenEnvRolloutProcessor(\n"
        f"        env_client_cls=ParrotEnv, env_base_url='{parrot.url}', action_parser=str),\n"
        ")\n"
        "def test_parrot(row: EvaluationRow) -> EvaluationRow:\n"
        "    rewards = row.execution_metadata.extra['step_rewards']\n"
        "    row.evaluation_result = EvaluateResult(score=min(1.0, sum(rewards)), reason='length')\n"
        "    return row\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(sampler: Any) -> Any:
        return create_openenv_vllm_rollout_func(
            None,
            build,
            lambda text: parrot.action(message=text),
            max_steps=1,
            env_path="parrot_evaluation",
            sampler=sampler,
        )

    trainer, _ = trained(tmp_path, lambda text: "x" * (4 if "One." in text else 40), make)
    out = trainer.rollout_func(["One.", "Two."], trainer)
    assert out["eval_score"] == pytest.approx([0.4, 1.0])
    assert out["env_reward"] == pytest.approx([0.4, 4.0])
