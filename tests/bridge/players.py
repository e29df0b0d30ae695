"""Trainers whose model follows a script: everything is TRL's and real but the choice of the next token.

A random tiny model calls no tool. Here each turn's text comes from a function of the conversation so far, is
tokenised by the model's own tokenizer, and goes on through TRL's parsing, masks and loss.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trl
from orsay_trl import GRPOTrainer

from .rolling import grpo

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
    """A scripted trainer of the tiny model over ``spec``."""
    slots: dict[str, Any] = {}
    if spec is not None:
        slots = {
            "train_dataset": spec.train_dataset,
            "environment_factory": spec.environment_factory,
            "reward_funcs": spec.reward_funcs,
        }
    trainer = grpo(
        folder,
        cls=cls,
        batch=batch,
        generations=generations,
        steps=steps,
        arguments={"max_tool_calling_iterations": 4, "learning_rate": 1e-4, **(arguments or {})},
        **{**slots, **more},
    )
    trainer.player = player
    trainer.generated = []
    return trainer
