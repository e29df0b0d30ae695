"""Plays batches of rollouts through one trainer, and prints the duration of its environment side.

python -m orsay_bench.train_play orsay-rollout --url http://127.0.0.1:8080 --episodes 96 --batches 2

Everything is TRL's and real but the choice of the next token: each turn of the model is looked up, which
takes microseconds, and no forward pass is made. Timed is `_generate_and_score_completions`, from the rows of
the dataset to padded tensors, rewards and advantages: sessions, prompts, calls, templates, parsing, scoring.
Batches follow each other without a pause, so that sessions which a contender ends late cost the next batch.
Prints one JSON object. Needs trl, torch and openreward.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
import trl
from orsay_trl import EnvironmentSpec, GRPOTrainer
from orsay_trl.rollout.sampling import Sample
from orsay_trl.testing import tiny_model as tiny

from .processes import Clock, ProcessTree

ENV = "WaitEnvironment"
CALLS = 4  # as the tasks of the environment say
GENERATIONS = 8
ANSWER = "<tool_response>"


class Script:
    """The turns of a model that plays the environment to its end, as token ids."""

    max_model_len: int | None = None

    def __init__(self, tokenizer: Any) -> None:
        def turn(text: str) -> list[int]:
            return [*tokenizer(text)["input_ids"], tokenizer.eos_token_id]

        call = '<tool_call>\n{"name": "work", "arguments": {"note": "part"}}\n</tool_call>'
        self._call, self._end = turn(call), turn("I am done.")
        self._answer = tokenizer.convert_tokens_to_ids(ANSWER)

    def say(self, prompt_ids: Sequence[int]) -> list[int]:
        """A call until there are enough answers, then a plain message."""
        answered = list(prompt_ids).count(self._answer)
        return list(self._call if answered < CALLS else self._end)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Sample:
        """Interface of a sampler for rollout functions."""
        ids = self.say(prompt_ids)
        return Sample(ids, [-1.0] * len(ids), "stop")

    async def aclose(self) -> None:
        """Nothing to close."""


class _Scripted:
    """Mixin before a trainer: replaces its model by the script."""

    script: Script

    def _generate_single_turn(
        self,
        prompt_ids: Any,
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> Any:
        return [self.script.say(ids) for ids in prompt_ids], None


class PlainTrainer(_Scripted, trl.GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer."""


class OwnTrainer(GRPOTrainer, _Scripted, trl.GRPOTrainer):  # type: ignore[misc]
    """Ours: its own view of a turn comes first, then the script."""

    _generate_single_turn = GRPOTrainer._generate_single_turn


class Ends:
    """Ends of the rollouts of a batch, as a reward function sees them."""

    def __init__(self) -> None:
        self.right = 0

    def watched(self, function: Callable[..., list[float | None]]) -> Callable[..., list[float | None]]:
        """The same reward function; a rollout counts as right with all calls, the end and the reward."""

        def rewards(**told: Any) -> list[float | None]:
            found = function(**told)
            played = told.get("environments") or told["episode"]
            self.right = sum(
                reward == 1.0 and bool(one.finished) and len(one.rewards) == CALLS
                for one, reward in zip(played, found, strict=True)
            )
            return found

        return rewards


Slots = dict[str, Any]


def trl_released(url: str, tasks: int, script: Script) -> tuple[type, Slots, Callable[..., Any]]:
    from trl.experimental.openreward import OpenRewardSpec

    os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = url
    os.environ.setdefault("OPENREWARD_API_KEY", "none")
    spec = OpenRewardSpec(url, num_tasks=tasks, env_name=ENV)
    slots = {"train_dataset": spec.train_dataset, "environment_factory": spec.environment_factory}
    return PlainTrainer, slots, spec.reward_funcs


def orsay_serial(
    url: str, tasks: int, script: Script, *, attach: bool = False
) -> tuple[type, Slots, Callable[..., Any]]:
    spec = EnvironmentSpec(url, num_tasks=tasks, env_name=ENV, attach=attach)
    slots = {"train_dataset": spec.train_dataset, "environment_factory": spec.environment_factory}
    return PlainTrainer, slots, spec.reward_funcs


def orsay_attached(url: str, tasks: int, script: Script) -> tuple[type, Slots, Callable[..., Any]]:
    return orsay_serial(url, tasks, script, attach=True)  # which happens in the batch that warms up


def orsay_factory(url: str, tasks: int, script: Script) -> tuple[type, Slots, Callable[..., Any]]:
    _, slots, rewards = orsay_serial(url, tasks, script)
    return OwnTrainer, slots, rewards


def orsay_rollout(url: str, tasks: int, script: Script) -> tuple[type, Slots, Callable[..., Any]]:
    from orsay_trl.rollout.rollout_func import reward_func, vllm_rollout_func

    spec = EnvironmentSpec(url, num_tasks=tasks, env_name=ENV)
    rollouts = vllm_rollout_func(spec, sampler=script, parity_rollouts=0)
    return PlainTrainer, {"train_dataset": spec.rollout_dataset, "rollout_func": rollouts}, reward_func


CONTENDERS = {
    "trl": trl_released,
    "orsay-serial": orsay_serial,
    "orsay-attached": orsay_attached,
    "orsay-factory": orsay_factory,
    "orsay-rollout": orsay_rollout,
}


def make(name: str, url: str, episodes: int, folder: str, ends: Ends) -> Any:
    """A trainer of the tiny model, with the contender in its slots."""
    tokenizer = tiny.tokenizer()
    script = Script(tokenizer)
    cls, slots, rewards = CONTENDERS[name](url, episodes // GENERATIONS, script)
    trainer = cls(
        model=tiny.model(tokenizer),
        args=trl.GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=episodes,
            num_generations=GENERATIONS,
            max_steps=1,
            max_completion_length=2048,
            max_tool_calling_iterations=CALLS + 4,
            report_to=[],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
            chat_template_kwargs={"enable_thinking": False},
        ),
        processing_class=tokenizer,
        reward_funcs=ends.watched(rewards),
        **slots,
    )
    trainer.script = script
    trainer.model.train()
    return trainer


def play(trainer: Any, ends: Ends, batches: int, server: ProcessTree | None) -> dict[str, Any]:
    """One batch to warm up, then `batches` of them; medians."""
    rows = next(iter(trainer.get_train_dataloader()))
    runs = []
    wrong = 0
    for number in range(batches + 1):
        gc.collect()
        clock = Clock(server)
        clock.start()
        own = time.thread_time()
        trainer._generate_and_score_completions(rows)
        own = time.thread_time() - own
        figures = {**clock.stop(len(rows)), "trainer_thread_s": round(own, 3)}
        if number:
            runs.append(figures)
        wrong += len(rows) - ends.right
        ends.right = 0
    found = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    return {
        "rollouts_per_s": found["per_s"],
        "batch_s": found["wall_s"],
        "cpu_s": round(found["generator_cpu"] * found["wall_s"], 3),
        "trainer_thread_s": found["trainer_thread_s"],
        "server_cpu_s": round(found.get("server_cpu", 0.0) * found["wall_s"], 3),
        "other_cpu": found.get("other_cpu", 0.0),
        "batches_s": [run["wall_s"] for run in runs],
        "episodes": len(rows),
        "errors": {"wrong rollouts": wrong} if wrong else {},
        "error_count": wrong,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m orsay_bench.train_play",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("--url", required=True, help="a server of servers/wait_env.py")
    parser.add_argument("--episodes", type=int, default=96, help=f"a multiple of {GENERATIONS}")
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--server-pid", type=int, help="to tell its CPU time from that of others")
    parser.add_argument("--core", type=int)
    options = parser.parse_args(arguments)
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    torch.set_num_threads(1)
    server = ProcessTree(options.server_pid) if options.server_pid else None
    ends = Ends()
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(options.contender, options.url, options.episodes, folder, ends)
        found = play(trainer, ends, options.batches, server)
        for environment in getattr(trainer, "environments", None) or ():
            with suppress(AttributeError):
                environment._close()
    print(json.dumps({"contender": options.contender, **found}))


if __name__ == "__main__":
    main()
