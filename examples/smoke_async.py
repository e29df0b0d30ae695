"""AsyncGRPO on a CPU: replacements for FlashAttention 3 and NCCL, and a worker that sends no seed.

The rollout worker is TRL's own, in a process of its own, and samples from a real server; a vLLM on a CPU may
die of a seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from orsay_trl import EnvironmentSpec
from orsay_trl.rollout.sync import DiskSync
from transformers import AutoTokenizer
from trl.experimental.async_grpo import async_grpo_trainer, async_rollout_worker, packing
from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker, _AsyncRolloutLoop

__all__ = ["SETTINGS", "CpuRolloutLoop", "CpuRolloutWorker", "FolderTransfer", "slots"]

SETTINGS: Mapping[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "dtype": "float32",
    "learning_rate": 1e-4,
    "save_strategy": "no",
    "disable_tqdm": True,
    "max_inflight_tasks": 4,
    "queue_maxsize": 8,
    "token_budget": 0,
}
"""Arguments of ``AsyncGRPOConfig`` that fit a CPU."""


class CpuRolloutLoop(_AsyncRolloutLoop):  # type: ignore[misc]
    """TRL's, without the seed."""

    async def _post(self, path: str, payload: dict[str, Any], timeout: float, max_retries: int = 3) -> Any:
        seedless = {key: value for key, value in payload.items() if key != "seed"}
        return await super()._post(path, seedless, timeout, max_retries)


class CpuRolloutWorker(AsyncRolloutWorker):  # type: ignore[misc]
    """TRL's, around that loop."""

    _loop_cls = CpuRolloutLoop


class FolderTransfer:
    """Weights for the server through the folder that it serves; ``model`` is set once there is a trainer."""

    def __init__(self, folder: str, base_url: str) -> None:
        self._disk = DiskSync(folder, base_url)
        self.model: Any = None
        self.sent = 0

    def init_weight_transfer(self) -> None:
        """Nothing: each transfer stands by itself."""

    def pause(self) -> None:
        """Nothing: the server takes new weights between two requests."""

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Save the whole model; ``iterator`` would yield the same, one by one."""
        for _ in iterator:
            pass
        self._disk.push(self.model)
        self.sent += 1

    def resume(self) -> None:
        """Nothing, as ``pause``."""

    def destroy(self) -> None:
        """Nothing is held."""


def slots(args: argparse.Namespace, spec: EnvironmentSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's ``rollout_worker`` and ``weight_transfer``, and its tokenizer."""
    torch.set_num_threads(1)
    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=attention)
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None  # TRL asks CUDA for the card's name
    # TRL asks for vLLM beside the trainer, though its worker only speaks to the server.
    async_rollout_worker.is_vllm_available = lambda: True
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    worker = CpuRolloutWorker(
        model_name=args.model,
        dataset=spec.train_dataset,
        reward_funcs=[],
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        environment_factory=spec.environment_factory,
        num_generations=settings["num_generations"],
        max_inflight_tasks=settings["max_inflight_tasks"],
        queue_maxsize=settings["queue_maxsize"],
        vllm_server_url=args.vllm_server_base_url,
        max_tokens=settings["max_completion_length"],
        chat_template_kwargs=settings["chat_template_kwargs"],
        max_tool_calling_iterations=settings["max_tool_calling_iterations"],
    )
    return {
        "rollout_worker": worker,
        "weight_transfer": FolderTransfer(args.model, args.vllm_server_base_url),
        "processing_class": tokenizer,
    }


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts_q: torch.Tensor,
    starts_k: torch.Tensor,
    *_: Any,
    softmax_scale: float,
    **__: Any,
) -> torch.Tensor:
    """FlashAttention's attention over segments laid end to end, causal from the last token of each back.

    ``query`` has the shape (tokens, heads, width); ``key`` and ``value`` (tokens of paths, key heads, width).
    """
    found = []
    groups = query.shape[1] // key.shape[1]
    for at in range(len(starts_q) - 1):
        q = query[starts_q[at] : starts_q[at + 1]].transpose(0, 1)
        k, v = (
            side[starts_k[at] : starts_k[at + 1]].transpose(0, 1).repeat_interleave(groups, 0)
            for side in (key, value)
        )
        behind = k.shape[1] - q.shape[1]
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(behind)
        one = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=softmax_scale)
        found.append(one.transpose(0, 1))
    return torch.cat(found)
