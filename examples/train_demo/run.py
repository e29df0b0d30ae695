"""One run from nothing to a report: serve, warm up, evaluate, train, evaluate."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from orsay_trl import EnvironmentSpec
from orsay_trl.testing import tiny_model as tiny

from . import training, transcripts, warmup
from .evaluation import Evaluation, by_model, evaluate
from .report import Batch, Report
from .screen import Screen
from .serving import VllmServer, serve_environment, serve_vllm

__all__ = ["Plan", "run"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of a run; the model learns with the defaults."""

    seed: int = 0
    steps: int = 30 * training.STEPS_PER_BATCH
    warm_up_episodes: int = 400
    warm_up_steps: int = 300
    evaluations: int = 8
    """Episodes of each held-out task."""
    vllm_python: Path | None = None
    """Train by rollout function, sampling from the vLLM of this interpreter's virtual environment."""

    @property
    def batches(self) -> int:
        return max(1, round(self.steps / training.STEPS_PER_BATCH))


def run(plan: Plan, folder: Path, screen: Screen) -> Report:
    """Do it; files that are not the report go into ``folder`` too."""
    import torch

    torch.set_num_threads(1)  # so small a model is slower on several
    began, cpu_began = time.perf_counter(), _children_cpu_seconds()
    folder.mkdir(parents=True, exist_ok=True)
    model_folder = folder / "model"
    with ExitStack() as stack:
        with screen.part("set-up", "serving the doors environment"):
            spec = EnvironmentSpec(stack.enter_context(serve_environment()), seed=plan.seed)
            stack.callback(spec.close)

        with screen.part("warm-up", f"playing {plan.warm_up_episodes} scripted episodes through the server"):
            texts = _scripted(spec, plan)
            tokenizer = tiny.tokenizer(texts)
            model = tiny.model(tokenizer, plan.seed)
        report = _begin_report(plan, model)

        server: VllmServer | None = None
        if plan.vllm_python is not None:
            model.save_pretrained(model_folder)
            tokenizer.save_pretrained(model_folder)
            screen.say("starting vLLM meanwhile", style="cyan")
            log = folder / "vllm.log"
            server = stack.enter_context(serve_vllm(plan.vllm_python, model_folder, log))

        with screen.part("warm-up", f"imitating them for {plan.warm_up_steps} steps"):
            examples = [transcripts.encode(tokenizer, text) for text in texts]
            losses = list(warmup.imitate(model, examples, steps=plan.warm_up_steps, seed=plan.seed))
            report.warm_up_loss = [losses[0], losses[-1]]

        report.held_out_before = _held_out(spec, model, tokenizer, plan, screen)
        if server is not None:
            with screen.part("vLLM", "waiting for vLLM"):
                server.wait()
        _train(spec, model, tokenizer, plan, folder, screen, report, server)
        report.held_out_after = _held_out(spec, model, tokenizer, plan, screen)
        model.save_pretrained(model_folder)
        tokenizer.save_pretrained(model_folder)
    report.seconds = {**screen.seconds, "total": time.perf_counter() - began}
    report.cpu_seconds = time.process_time() + _children_cpu_seconds() - cpu_began
    return report


def _scripted(spec: EnvironmentSpec, plan: Plan) -> list[str]:
    environment = spec.environment_factory()
    plain = tiny.tokenizer()  # its template renders the texts that the real one learns from
    rows = list(spec.train_dataset)
    played = warmup.play_many(environment, rows, plan.warm_up_episodes, plan.seed)
    return [transcripts.render(plain, messages, spec.tools.schemas) for messages in played]


def _held_out(spec: EnvironmentSpec, model: Any, tokenizer: Any, plan: Plan, screen: Screen) -> Evaluation:
    with screen.part("evaluation", "playing the held-out tasks"), by_model(spec, model, tokenizer) as policy:
        found = evaluate(spec, policy, times=plan.evaluations)
    screen.say(f"  reward {found.reward:.3f}: {found.won} of {found.episodes} episodes won")
    return found


def _train(
    spec: EnvironmentSpec,
    model: Any,
    tokenizer: Any,
    plan: Plan,
    folder: Path,
    screen: Screen,
    report: Report,
    server: VllmServer | None,
) -> None:
    rollout_func = None
    if server is not None:
        from orsay_trl import vllm_rollout_func
        from orsay_trl.rollout.sync import DiskSync

        sync = DiskSync(folder / "model", server.url)
        rollout_func = vllm_rollout_func(spec, base_url=server.url, sync=sync, max_turns=3)
    trainer = training.make_trainer(
        model,
        tokenizer,
        spec,
        batches=plan.batches,
        seed=plan.seed,
        folder=folder / "trainer",
        rollout_func=rollout_func,
    )
    last = time.perf_counter()

    def seen(logs: Mapping[str, float]) -> None:
        nonlocal last
        now = time.perf_counter()
        batch = Batch(logs["reward"], now - last, _environment_share(logs))
        last = now
        report.batches.append(batch)
        if "sampling/parity" in logs:
            report.parity = max(report.parity or 0.0, logs["sampling/parity"])
        screen.show(batch.reward, f"{batch.seconds:.1f} s")

    training.watch(trainer, seen)
    with screen.part("training", f"training with GRPO by {report.path}"), screen.curve(plan.batches):
        last = time.perf_counter()
        trainer.train()


def _environment_share(logs: Mapping[str, float]) -> float:
    if "env/wait_share" in logs:
        return logs["env/wait_share"]
    played, sampled = logs["rollout/environment_s"], logs["rollout/sampling_s"]
    return played / max(played + sampled, 1e-9)


def _begin_report(plan: Plan, model: Any) -> Report:
    return Report(
        seed=plan.seed,
        path="environment_factory" if plan.vllm_python is None else "vllm_rollout_func",
        model_parameters=sum(weights.numel() for weights in model.parameters()),
        versions={name: version(name) for name in ("orsay", "trl", "transformers", "torch")},
        warm_up_episodes=plan.warm_up_episodes,
        warm_up_steps=plan.warm_up_steps,
        optimizer_steps=plan.batches * training.STEPS_PER_BATCH,
        episodes_per_batch=training.PROMPTS * training.GENERATIONS,
    )


def _children_cpu_seconds() -> float:
    """CPU time of ended child processes, perhaps including those of the shell that became this process."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime
