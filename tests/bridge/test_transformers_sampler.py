"""Sampling in this process: batches do not change what one prompt would get, and logprobs are the model's."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

import torch
from orsay_trl.rollout.batching import Batcher
from orsay_trl.rollout.sampling import PromptTooLong, Sample, Sampling
from orsay_trl.rollout.transformers import TransformersSampler
from orsay_trl.testing import tiny_model as tiny


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    torch.set_num_threads(1)
    return tiny.tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return tiny.model(tokenizer)


@asynccontextmanager
async def sampling(model: Any, tokenizer: Any, *args: Any, **more: Any) -> AsyncIterator[TransformersSampler]:
    sampler = TransformersSampler(model, tokenizer, *args, **more)
    try:
        yield sampler
    finally:
        await sampler.aclose()


def logprobs_of(model: Any, prompt: Sequence[int], sample: Sample, temperature: float = 1.0) -> list[float]:
    """What the model gives these tokens in one forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *sample.token_ids]])).logits[0].float()
    found = (logits / temperature).log_softmax(-1)[len(prompt) - 1 :]
    return [float(found[at, token]) for at, token in enumerate(sample.token_ids)]


async def test_logprobs_are_those_of_one_forward_pass(model: Any, tokenizer: Any) -> None:
    async with sampling(model, tokenizer, Sampling(temperature=0.7)) as sampler:
        prompts = [[5, 6, 7], list(range(10, 60)), [9]]
        samples = await asyncio.gather(*(sampler.sample(prompt, max_tokens=40) for prompt in prompts))
    for prompt, sample in zip(prompts, samples, strict=True):
        assert len(sample.token_ids) == len(sample.logprobs) <= 40
        assert sample.logprobs == pytest.approx(logprobs_of(model, prompt, sample, 0.7), abs=1e-3)


async def test_a_prompt_gets_the_same_alone_and_among_longer_ones(model: Any, tokenizer: Any) -> None:
    async with sampling(model, tokenizer, Sampling(temperature=0)) as sampler:
        alone = await sampler.sample([5, 6, 7], max_tokens=20)
        together = await asyncio.gather(
            sampler.sample(list(range(100, 190)), max_tokens=30), sampler.sample([5, 6, 7], max_tokens=20)
        )
    assert together[1].token_ids == alone.token_ids
    assert together[1].logprobs == pytest.approx(alone.logprobs, abs=1e-4)
    assert len(together[0].token_ids) <= 30


async def test_each_request_ends_at_its_own_limit_or_end_token(model: Any, tokenizer: Any) -> None:
    limits = [1, 3, 17, 200]
    stops = tuple(range(60))  # of 700 tokens: some turns end by themselves, and some do not
    async with sampling(model, tokenizer, Sampling(stop_token_ids=stops)) as sampler:
        samples = await asyncio.gather(*(sampler.sample([65, 66], max_tokens=limit) for limit in limits * 6))
    ends = {tokenizer.eos_token_id, tokenizer.pad_token_id, *stops}
    for sample, limit in zip(samples, limits * 6, strict=True):
        assert 1 <= len(sample.token_ids) <= limit
        assert (sample.finish_reason == "stop") == (sample.token_ids[-1] in ends)
        assert not ends.intersection(sample.token_ids[:-1])
        if sample.finish_reason == "length":
            assert len(sample.token_ids) == limit
    assert {sample.finish_reason for sample in samples} == {"stop", "length"}


async def test_the_tokens_follow_the_distribution(model: Any, tokenizer: Any) -> None:
    async with sampling(model, tokenizer, Sampling(temperature=0.2)) as sampler:
        samples = await asyncio.gather(*(sampler.sample([5, 6], max_tokens=1) for _ in range(600)))
    counts = Counter(sample.token_ids[0] for sample in samples)
    with torch.no_grad():
        wanted = model(torch.tensor([[5, 6]])).logits[0, -1].float().div(0.2).softmax(-1)
    entropy = -float((wanted * wanted.log()).sum())
    seen = -sum(count / 600 * float(wanted[token].log()) for token, count in counts.items())
    assert seen == pytest.approx(entropy, abs=0.3)
    assert entropy < 0.9 * math.log(len(tokenizer))  # else any sampler would do


@pytest.mark.parametrize(
    "settings",
    [Sampling(top_k=5), Sampling(top_p=0.01), Sampling(min_p=0.9), Sampling(repetition_penalty=1.5)],
)
async def test_logprobs_are_of_the_filtered_distribution(
    model: Any, tokenizer: Any, settings: Sampling
) -> None:
    async with sampling(model, tokenizer, settings) as sampler:
        sample = await sampler.sample([5, 6, 7], max_tokens=20)
    raw = logprobs_of(model, [5, 6, 7], sample)
    assert len(raw) == len(sample.logprobs)
    if settings.repetition_penalty == 1:  # fewer candidates, so each is likelier
        assert all(mine > theirs for mine, theirs in zip(sample.logprobs, raw, strict=True))
        assert max(sample.logprobs) <= 0
    else:
        assert sample.logprobs != pytest.approx(raw, abs=1e-4)


async def test_a_stop_token_of_the_settings_ends_the_turn(model: Any, tokenizer: Any) -> None:
    async with sampling(model, tokenizer, Sampling(temperature=0)) as sampler:
        free = await sampler.sample([5, 6, 7], max_tokens=5)
    stop = free.token_ids[1]
    async with sampling(model, tokenizer, Sampling(temperature=0, stop_token_ids=(stop,))) as sampler:
        sample = await sampler.sample([5, 6, 7], max_tokens=5)
    assert sample.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    assert sample.finish_reason == "stop"


async def test_the_context_is_a_limit_too(model: Any, tokenizer: Any) -> None:
    async with sampling(model, tokenizer, Sampling(temperature=0), max_model_len=8) as sampler:
        assert len((await sampler.sample([5, 6, 7], max_tokens=100)).token_ids) <= 5
        with pytest.raises(PromptTooLong, match="8 tokens and the model's context is 8"):
            await sampler.sample([5] * 8, max_tokens=1)
    async with sampling(model, tokenizer) as sampler:
        assert sampler.max_model_len == model.config.max_position_embeddings


async def test_the_model_stays_in_its_mode_and_keeps_its_gradients(model: Any, tokenizer: Any) -> None:
    model.train()
    try:
        async with sampling(model, tokenizer) as sampler:
            await sampler.sample([5, 6, 7], max_tokens=3)
        assert model.training
        loss = model(torch.tensor([[5, 6, 7]]), labels=torch.tensor([[5, 6, 7]])).loss
        loss.backward()
        assert math.isfinite(loss.detach().item())
    finally:
        model.zero_grad()
        model.eval()


async def test_an_error_of_the_model_reaches_who_asked_and_the_next_is_answered(
    model: Any, tokenizer: Any
) -> None:
    async with sampling(model, tokenizer) as sampler:
        with pytest.raises(IndexError):
            await sampler.sample([10**6], max_tokens=1)
        assert (await sampler.sample([5], max_tokens=1)).token_ids


async def test_requests_that_wait_together_are_answered_together() -> None:
    from concurrent.futures import ThreadPoolExecutor

    batches: list[int] = []

    def work(requests: Sequence[int]) -> list[int]:
        batches.append(len(requests))
        return [2 * request for request in requests]

    with ThreadPoolExecutor(1) as executor:
        batcher: Batcher[int, int] = Batcher(work, executor, limit=8)
        assert await asyncio.gather(*map(batcher.submit, range(20))) == [2 * at for at in range(20)]
        await batcher.aclose()
    assert max(batches) == 8
    assert len(batches) == 3


async def test_who_gives_up_is_left_out_of_the_batch() -> None:
    from concurrent.futures import ThreadPoolExecutor

    seen: list[int] = []

    def work(requests: Sequence[int]) -> list[int]:
        seen.extend(requests)
        return list(requests)

    with ThreadPoolExecutor(1) as executor:
        batcher: Batcher[int, int] = Batcher(work, executor, limit=8, linger_s=0.05)
        leaving = asyncio.create_task(batcher.submit(1))
        staying = asyncio.create_task(batcher.submit(2))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == 2
        await batcher.aclose()
    assert seen == [2]
