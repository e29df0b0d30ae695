"""Parity of sampler and trainer: the largest difference of their logprobs over sampled tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..trainer._trl import logprobs
from .tokens import Transcript, tokenizer_of

__all__ = ["parity"]


def parity(trainer: Any, transcripts: Sequence[Transcript]) -> float | None:
    """max |sampler's logprob - trainer's logprob| over the sampled tokens of ``transcripts``.

    One forward pass of ``trl.GRPOTrainer``, by the function that computes its loss, so that ids, masks,
    weights and temperature are all compared. All processes of a training must call it with as many
    transcripts. None when nothing was sampled.
    """
    import torch
    from trl.trainer.utils import pad

    if not transcripts:
        return None
    filler = tokenizer_of(trainer.processing_class).pad_token_id or 0

    def tensor(rows: list[list[Any]], value: float, side: str) -> Any:
        padded = pad([torch.tensor(row) for row in rows], padding_value=value, padding_side=side)
        return padded.to(trainer.accelerator.device)

    prompts = [transcript.prompt_ids for transcript in transcripts]
    completions = [transcript.completion_ids for transcript in transcripts]
    ids = torch.cat([tensor(prompts, filler, "left"), tensor(completions, filler, "right")], dim=1)
    present = torch.cat(
        [
            tensor([[1] * len(row) for row in prompts], 0, "left"),
            tensor([[1] * len(row) for row in completions], 0, "right"),
        ],
        dim=1,
    )
    width = max(map(len, completions))
    with torch.no_grad():
        found = logprobs(trainer, ids, present, width)
    sampled = tensor([transcript.mask for transcript in transcripts], 0, "right").bool()
    theirs = tensor([transcript.logprobs for transcript in transcripts], 0.0, "right")
    differences = (found.float() - theirs).abs()[sampled]
    return float(differences.max()) if differences.numel() else None
