"""Rollouts whose model follows a script, for trainers that are real: everything but the choice of tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import trl
from orsay_trl.rollout.sampling import Sample
from orsay_trl.testing import tiny_model as tiny

__all__ = ["ScriptedSampler", "chance", "grpo", "hesitant", "logged"]


class ScriptedSampler:
    """Says what ``player`` makes of the conversation so far, with the logprobs that the model gives that."""

    max_model_len: int | None = None

    def __init__(self, model: Any, tokenizer: Any, player: Callable[[str], str]) -> None:
        self.model, self.tokenizer, self.player = model, tokenizer, player
        self.turns: list[tuple[list[int], list[int]]] = []
        self.allowed: list[int] = []
        self.at_once = self.most_at_once = 0

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Sample:
        prompt = list(prompt_ids)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.001)
        self.at_once -= 1
        said = self.tokenizer(self.player(self.tokenizer.decode(prompt)))["input_ids"]
        ids = [*said, self.tokenizer.eos_token_id][:max_tokens]
        self.turns.append((prompt, ids))
        self.allowed.append(max_tokens)
        with torch.no_grad():
            scores = self.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 :].log_softmax(-1)
        reason: Any = "stop" if ids[-1] == self.tokenizer.eos_token_id else "length"
        return Sample(ids, [float(scores[at, token]) for at, token in enumerate(ids)], reason)

    async def aclose(self) -> None:
        raise AssertionError("a sampler that was handed in is not ours to close")


def grpo(
    folder: Path,
    *,
    cls: type = trl.GRPOTrainer,
    model: Any = None,
    tokenizer: Any = None,
    batch: int = 4,
    generations: int = 2,
    steps: int = 2,
    arguments: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """A trainer on one thread of the CPU, TRL's own or another, for the tiny model or another."""
    torch.set_num_threads(1)
    tokenizer = tokenizer if tokenizer is not None else tiny.tokenizer()
    settings = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": batch,
        "num_generations": generations,
        "max_steps": steps,
        "max_completion_length": 256,
        "learning_rate": 1e-3,
        "report_to": [],
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "chat_template_kwargs": {"enable_thinking": False},
        **(arguments or {}),
    }
    return cls(
        model=model if model is not None else tiny.model(tokenizer),
        args=trl.GRPOConfig(**settings),
        processing_class=tokenizer,
        **more,
    )


def hesitant(model: Any, certainty: float = 0.42) -> Any:
    """The model of ``standin.model`` with doubts: it calls often, but not always the same.

    With less ``certainty`` it says anything, hardly ever twice the same.
    """
    with torch.no_grad():
        model.lm_head.weight *= certainty
    return model


def chance(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that hardly gives two rollouts the same, so that each step changes the weights."""
    return [float(sum(ids) % 101) for ids in completion_ids]


def logged(trainer: Any, name: str) -> list[float]:
    """A metric's values, one for each step that logged it."""
    return [entry[name] for entry in trainer.state.log_history if name in entry]
