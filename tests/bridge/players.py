"""Trainers whose model follows a script: everything is TRL's and real but the choice of the next token.

A random tiny model calls no tool. Here each turn's text comes from a function of the conversation so far, is
tokenised by the model's own tokenizer, and goes on through TRL's parsing, masks and loss.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import trl
from orsay_trl import GRPOTrainer, tiny

__all__ = ["ConcurrentScripted", "PlainScripted", "call", "doors_player", "make_trainer"]

Player = Callable[[str], str]


class Scripted:
    """Before ``trl.GRPOTrainer`` among the bases: samples what ``player`` says."""

    player: Player
    turns: int
    generated: list[int]

    def _generate_single_turn(
        self,
        prompt_ids: Any,
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> Any:
        tokenizer = self.processing_class  # type: ignore[attr-defined]
        self.generated.append(len(prompt_ids))
        texts = [self.player(text) for text in tokenizer.batch_decode(prompt_ids)]
        ids = [tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in texts]
        return [one[: self.max_completion_length] for one in ids], None  # type: ignore[attr-defined]


class PlainScripted(Scripted, trl.GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer as it comes."""


class ConcurrentScripted(GRPOTrainer, Scripted, trl.GRPOTrainer):  # type: ignore[misc]
    """Ours."""

    _generate_single_turn = GRPOTrainer._generate_single_turn


def call(name: str, **arguments: Any) -> str:
    """A tool call as Qwen3 writes it."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def doors_player(text: str) -> str:
    """Wins the doors environment: looks at the door, then opens it with the word that is written there."""
    word = re.findall(r"is written: (\w+)", text)
    if not word:
        return call("look", door=int(re.findall(r"Open door (\d+)", text)[-1]))
    if "The door opens" in text or "The door stays" in text:
        return "I am done."
    return call("open", code=word[-1])


def make_trainer(
    cls: type,
    folder: Path,
    *,
    player: Player,
    spec: Any = None,
    generations: int = 2,
    batch: int = 4,
    steps: int = 1,
    arguments: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """A trainer of the tiny model over ``spec`` on one thread of the CPU."""
    torch.set_num_threads(1)
    tokenizer = tiny.tokenizer()
    settings = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": batch,
        "num_generations": generations,
        "max_steps": steps,
        "max_completion_length": 256,
        "max_tool_calling_iterations": 4,
        "learning_rate": 1e-4,
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
    slots: dict[str, Any] = {}
    if spec is not None:
        slots = {
            "train_dataset": spec.train_dataset,
            "environment_factory": spec.environment_factory,
            "reward_funcs": spec.reward_funcs,
        }
    trainer = cls(
        model=more.pop("model", None) or tiny.model(tokenizer),
        args=trl.GRPOConfig(**settings),
        processing_class=tokenizer,
        **{**slots, **more},
    )
    trainer.player = player
    trainer.generated = []
    return trainer


def logged(trainer: Any, name: str) -> Sequence[float]:
    """A metric's values, one for each step that logged it."""
    return [entry[name] for entry in trainer.state.log_history if name in entry]
