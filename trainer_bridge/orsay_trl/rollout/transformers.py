"""Sampling with a transformers model in this process, for machines without vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from .batching import Batcher
from .sampling import PromptTooLong, Sample, Sampling
from .tokens import end_tokens, tokenizer_of

__all__ = ["TransformersSampler"]


@dataclass(frozen=True, slots=True)
class _Request:
    prompt_ids: list[int]
    max_tokens: int


class TransformersSampler:
    """Samples with ``model.generate``, with all waiting requests in one batch.

    Logprobs are those of the sampled distribution, after temperature, penalty and filters, in float32. The
    model's mode (training or evaluation) is restored.

    Args:
        model: A causal language model, on its device, not wrapped for distributed training.
        tokenizer: Its tokenizer, or a processor that has one.
        sampling: How tokens are drawn.
        batch_size: Rows in one batch at most; each holds a key-value cache of its whole length.
        max_model_len: The context limit in tokens; by default the model's ``max_position_embeddings``.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        sampling: Sampling | None = None,
        *,
        batch_size: int = 256,
        max_model_len: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size}")
        self.model = model
        self.sampling = sampling or Sampling()
        self._tokenizer = tokenizer_of(tokenizer)
        self._ends = tuple(
            dict.fromkeys((*end_tokens(model, self._tokenizer), *self.sampling.stop_token_ids))
        )
        self._pad = (
            self._tokenizer.pad_token_id if self._tokenizer.pad_token_id is not None else self._ends[0]
        )
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.max_model_len: int | None = max_model_len or limit
        # A separate thread: gradients are disabled there without effect on the trainer's thread.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="orsay-sampler")
        self._batcher: Batcher[_Request, Sample] = Batcher(self._generate, self._executor, limit=batch_size)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Sample:
        """Continue ``prompt_ids``. Raises PromptTooLong, and what the model raises."""
        if not prompt_ids:
            raise ValueError("a prompt needs at least one token")
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1; got {max_tokens}")
        if self.max_model_len is not None:
            room = self.max_model_len - len(prompt_ids)
            if room < 1:
                raise PromptTooLong(
                    f"the prompt has {len(prompt_ids)} tokens and the model's context is "
                    f"{self.max_model_len}: no room for a single token"
                )
            max_tokens = min(max_tokens, room)
        return await self._batcher.submit(_Request(list(prompt_ids), max_tokens))

    async def aclose(self) -> None:
        """End the sampling thread; safe to call twice."""
        await self._batcher.aclose()
        self._executor.shutdown(wait=False)

    def _generate(self, requests: Sequence[_Request]) -> list[Sample]:
        import torch
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

        width = max(len(request.prompt_ids) for request in requests)
        ids = torch.full((len(requests), width), self._pad, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(requests):
            ids[row, width - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
            mask[row, width - len(request.prompt_ids) :] = 1
        draw = _draw_class()(self.sampling)
        device = self.model.device
        with torch.no_grad(), _evaluating(self.model), _on(device):
            found = self.model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                # Greedy over the one token that ``draw`` leaves; the model's own settings would filter again.
                generation_config=GenerationConfig(
                    do_sample=False,
                    max_new_tokens=max(request.max_tokens for request in requests),
                    eos_token_id=list(self._ends),
                    pad_token_id=self._pad,
                    use_cache=True,
                ),
                logits_processor=LogitsProcessorList([draw]),
                stopping_criteria=StoppingCriteriaList(
                    [_limits_class()([width + request.max_tokens for request in requests])]
                ),
            )
            logprobs = torch.stack(draw.logprobs, dim=1).float().cpu()
        new = found[:, width:].cpu()
        return [
            self._cut(new[row].tolist(), logprobs[row].tolist(), request.max_tokens)
            for row, request in enumerate(requests)
        ]

    def _cut(self, ids: list[int], logprobs: list[float], max_tokens: int) -> Sample:
        """The row without tokens after its end, which the batch continued with."""
        for at, token in enumerate(ids[:max_tokens]):
            if token in self._ends:
                return Sample(ids[: at + 1], logprobs[: at + 1], "stop")
        return Sample(ids[:max_tokens], logprobs[:max_tokens], "length")


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode: without dropout, with the cache that gradient checkpointing disables."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _on(device: Any) -> Any:
    """Set the current CUDA device, which is a state of the thread."""
    import torch

    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _draw_class() -> Any:
    import torch
    from transformers import (
        LogitsProcessor,
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    class Draw(LogitsProcessor):  # type: ignore[misc]  # transformers has no types for it
        """Logits processor that draws the token, leaves only it, and records its logprob."""

        def __init__(self, sampling: Sampling) -> None:
            self.logprobs: list[torch.Tensor] = []
            self._greedy = sampling.temperature == 0
            self._steps: list[Any] = []
            if sampling.repetition_penalty != 1:
                self._steps.append(RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
            if not self._greedy and sampling.temperature != 1:
                self._steps.append(TemperatureLogitsWarper(float(sampling.temperature)))
            if sampling.top_k:
                self._steps.append(TopKLogitsWarper(sampling.top_k))
            if sampling.top_p < 1:
                self._steps.append(TopPLogitsWarper(sampling.top_p))
            if sampling.min_p > 0:
                self._steps.append(MinPLogitsWarper(sampling.min_p))

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            scores = scores.float()
            for step in self._steps:
                scores = step(input_ids, scores)
            logprobs = scores.log_softmax(dim=-1)
            if self._greedy:
                drawn = logprobs.argmax(dim=-1, keepdim=True)
            else:
                drawn = torch.multinomial(logprobs.exp(), 1)
            self.logprobs.append(logprobs.gather(-1, drawn).squeeze(-1))
            return torch.full_like(scores, float("-inf")).scatter_(-1, drawn, 0.0)

    return Draw


def _limits_class() -> Any:
    import torch
    from transformers import StoppingCriteria

    class Limits(StoppingCriteria):  # type: ignore[misc]  # transformers has no types for it
        """Stopping criterion that ends each row at its own length."""

        def __init__(self, lengths: Sequence[int]) -> None:
            self._lengths = torch.tensor(lengths)

        def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            return input_ids.shape[1] >= self._lengths.to(input_ids.device)

    return Limits
