"""The GRPO run: TRL's trainer with the settings that let so small a model learn within minutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["EVALUATIONS", "GENERATIONS", "PROMPTS", "STEPS_PER_BATCH", "make_trainer", "watch"]

PROMPTS, GENERATIONS = 12, 8
"""A batch: tasks, and episodes of each."""
STEPS_PER_BATCH = 4
"""Optimizer steps on each batch of episodes; playing is what costs time."""
EVALUATIONS = 8
"""Episodes of each held-out task."""


def make_trainer(
    model: Any,
    tokenizer: Any,
    spec: Any,
    *,
    batches: int,
    seed: int,
    folder: Path,
    rollout_func: Callable[..., Any] | None = None,
    **more: Any,
) -> Any:
    """A trainer for that many batches of episodes of ``spec``, played by TRL or by ``rollout_func``."""
    from trl import GRPOConfig, GRPOTrainer  # an extra

    settings = {
        "output_dir": str(folder),
        "seed": seed,
        "max_steps": batches * STEPS_PER_BATCH,
        "per_device_train_batch_size": PROMPTS * GENERATIONS,
        "num_generations": GENERATIONS,
        "steps_per_generation": 1,
        "num_iterations": STEPS_PER_BATCH,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "linear",
        "scale_rewards": "batch",
        "beta": 0.0,
        "temperature": 1.0,
        "gradient_checkpointing": False,
        "max_completion_length": 192,
        "max_tool_calling_iterations": 3,
        "chat_template_kwargs": {"enable_thinking": False},
        "per_device_eval_batch_size": 5 * EVALUATIONS,
        "num_generations_eval": EVALUATIONS,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
    }
    slots: dict[str, Any] = {
        "train_dataset": spec.train_dataset,
        "eval_dataset": spec.eval_dataset,
        "environment_factory": spec.environment_factory,
    }
    if rollout_func is not None:
        slots = {
            "train_dataset": spec.rollout_dataset,
            "eval_dataset": spec.rollout_eval_dataset,
            "rollout_func": rollout_func,
        }
    return GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        args=GRPOConfig(**{**settings, **more}),
        reward_funcs=spec.reward_funcs,
        **slots,
    )


def watch(trainer: Any, seen: Callable[[Mapping[str, float]], object]) -> None:
    """Have ``seen`` called with what the trainer logs of each batch of episodes."""
    from transformers import PrinterCallback, TrainerCallback  # an extra

    class Watch(TrainerCallback):  # type: ignore[misc]  # transformers has no types for it
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **_: Any) -> None:
            if "reward" in logs:
                seen(logs)

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Watch())
