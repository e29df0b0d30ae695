"""Rollouts whose model follows a script, for trainers that are real: everything but the choice of tokens."""

from __future__ import annotations

import asyncio
import functools
import gc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from orsay_trl.rollout.sampling import Sample

from .templates import plain_tokenizer

__all__ = ["ScriptedSampler", "chance", "grpo", "hesitant", "logged", "smallest"]


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
        answer = self.tokenizer(self.player(self.tokenizer.decode(prompt)))["input_ids"]
        ids = [*answer, self.tokenizer.eos_token_id][:max_tokens]
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
    """A trainer on one thread of the CPU, TRL's own or another, for the smallest model or another."""
    torch.set_num_threads(1)
    _keep_imports_out_of_collections()
    tokenizer = tokenizer if tokenizer is not None else plain_tokenizer()
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
        model=model if model is not None else smallest(tokenizer),
        args=trl.GRPOConfig(**settings),
        processing_class=tokenizer,
        **more,
    )


def smallest(tokenizer: Any) -> Any:
    """An untrained model of one narrow layer, for tests in which a script chooses the tokens.

    A training step of the tiny model costs a second of CPU, and one of this model a quarter.
    """
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16,
        intermediate_size=16,
        initializer_range=0.05,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made: Any = transformers.Qwen3ForCausalLM(config).eval()
    made.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    return made


@functools.cache
def _keep_imports_out_of_collections() -> None:
    """Training ends with a full garbage collection: 0.2 s with all of torch and TRL to look at."""
    gc.collect()
    gc.freeze()


def hesitant(model: Any, certainty: float = 0.42) -> Any:
    """The model of ``model_server.model`` with doubts: it calls often, but not always the same.

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
