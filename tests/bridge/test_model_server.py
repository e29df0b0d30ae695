"""The stand-in by itself, and the answers of the real vLLM that were recorded for it.

That both give these answers is shown by ``test_vllm_real.py``.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

import torch
from orsay_trl.rollout.sync import untie
from transformers import AutoModelForCausalLM

from ..support.model_server import engine, model
from ..support.model_server.processes import ServedModel, serve_model
from ..support.model_server.questions import QUESTIONS, RECORDED, difference

pytestmark = pytest.mark.process

ANSWERS: dict[str, Any] = json.loads(RECORDED.read_text())
DRAWN = [name for name, question in QUESTIONS.items() if question.drawn and "prompt" in (question.body or {})]


@pytest.fixture(scope="module")
def toolless(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    """Without tool parsing, over a folder that may be written to."""
    folder = Path(shutil.copytree(model_folder, tmp_path_factory.mktemp("toolless") / "model"))
    with serve_model(folder, tools=False) as served:
        yield served


def connected(served: ServedModel) -> httpx.Client:
    return httpx.Client(base_url=served.base_url, timeout=60, trust_env=False)


def greedy(prompt: list[int], **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "temperature": 0, "logprobs": 0, "return_token_ids": True, **fields}


def completed(client: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def test_the_model_is_the_one_whose_answers_were_recorded(model_folder: Path) -> None:
    here, recorded = model.fingerprint(model_folder), ANSWERS["model"]
    assert here["tokenizer"] == recorded["tokenizer"]
    assert here["template"] == recorded["template"], (
        "this release of TRL has another Qwen3 template: record again"
    )
    assert here["weights"].keys() == recorded["weights"].keys()
    for name, sums in recorded["weights"].items():
        assert here["weights"][name] == pytest.approx(sums, abs=1e-3, rel=1e-5), name


def test_every_question_has_a_recorded_answer() -> None:
    assert ANSWERS["answers"].keys() == QUESTIONS.keys()


@pytest.mark.parametrize("name", ["greedy", "drawn", "too long", "chat with tools"])
def test_a_changed_answer_would_be_noticed(name: str) -> None:
    wanted = ANSWERS["answers"][name]
    changed = json.loads(
        json.dumps(wanted).replace('"choices"', '"chosen"').replace('"code": 400', '"code": 422')
    )
    with pytest.raises((AssertionError, KeyError)):
        assert difference(QUESTIONS[name], wanted, changed) is None


@pytest.mark.parametrize("name", DRAWN)
def test_recorded_logprobs_are_those_of_the_distribution_that_the_model_server_draws_from(
    name: str, model_folder: Path
) -> None:
    """vLLM's own draws, put through the stand-in's reading of its filters."""
    asked = QUESTIONS[name].body or {}
    params = engine.Params(
        max_tokens=1,
        **{
            key: asked[key]
            for key in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
            if key in asked
        },
    )
    weights: Any = AutoModelForCausalLM.from_pretrained(model_folder)
    for choice in ANSWERS["answers"][name]["body"]["choices"]:
        prompt, ids = choice["prompt_token_ids"], choice["token_ids"]
        with torch.inference_mode():
            logits = weights(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        for at, (token, logprob) in enumerate(zip(ids, choice["logprobs"]["token_logprobs"], strict=True)):
            ours = engine.processed(logits[at], params, prompt + ids[:at]).log_softmax(-1)[token]
            assert float(ours) == pytest.approx(logprob, abs=1e-3)


def test_tokens_are_drawn_as_often_as_their_logprobs_say(model_server: ServedModel) -> None:
    body = {
        "prompt": [64, 65, 66],
        "max_tokens": 1,
        "n": 200,
        "top_k": 3,
        "logprobs": 0,
        "return_token_ids": True,
    }
    seen: Counter[int] = Counter()
    shares: dict[int, float] = {}
    with connected(model_server) as client:
        answers = [client.post("/v1/completions", json=body).json() for _ in range(5)]
    for choice in (choice for answer in answers for choice in answer["choices"]):
        (token,), (logprob,) = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        seen[token] += 1
        shares[token] = math.exp(logprob)
    assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
    for token, share in shares.items():
        assert abs(seen[token] - 1000 * share) < 6 * (1000 * share * (1 - share)) ** 0.5, (seen, shares)


def test_requests_in_one_batch_get_the_answers_that_they_get_alone(model_server: ServedModel) -> None:
    bodies = [
        greedy([(3 * at + by) % 600 for by in range(1 + 5 * at)], max_tokens=3 + 2 * at) for at in range(20)
    ]
    with connected(model_server) as client, ThreadPoolExecutor(len(bodies)) as threads:
        model_server.seen()
        alone = [completed(client, body) for body in bodies]
        assert model_server.seen()["most_at_once"] == 1
        together = list(threads.map(lambda body: completed(client, body), bodies))
    assert model_server.seen()["most_at_once"] > 1
    for one, two in zip(alone, together, strict=True):
        assert two["token_ids"] == one["token_ids"]
        assert two["logprobs"]["token_logprobs"] == pytest.approx(one["logprobs"]["token_logprobs"], abs=1e-4)


def test_tools_need_the_parser_to_be_switched_on(toolless: ServedModel) -> None:
    asked = QUESTIONS["chat with tools"].body or {}
    with connected(toolless) as client:
        assert client.post("/v1/chat/completions", json=asked).status_code == 400
        plain = client.post("/v1/chat/completions", json={**asked, "tool_choice": "none"})
    assert plain.json()["choices"][0]["message"]["content"] == model.CALL.removesuffix("<|im_end|>")


def test_reloaded_weights_are_used_once_the_prefix_cache_was_reset(toolless: ServedModel) -> None:
    with connected(toolless) as client:
        before = completed(client, greedy([64, 65, 66]))
        model.build(toolless.folder, seed=1)
        assert client.post("/collective_rpc", json={"method": "reload_weights"}).status_code == 200
        assert completed(client, greedy([64, 65, 66])) == before
        assert client.post("/reset_prefix_cache").json() == {"success": True}
        assert completed(client, greedy([64, 65, 66]))["logprobs"] != before["logprobs"]


def test_a_tied_model_keeps_its_old_output_layer_as_in_vllm(toolless: ServedModel) -> None:
    def first_logprob() -> float:
        client.post("/collective_rpc", json={"method": "reload_weights"}).raise_for_status()
        client.post("/reset_prefix_cache").raise_for_status()
        (logprob,) = completed(client, greedy([64, 65, 66], max_tokens=1))["logprobs"]["token_logprobs"]
        return float(logprob)

    changed: Any = AutoModelForCausalLM.from_pretrained(toolless.folder)
    uniform = -math.log(changed.config.vocab_size)
    with connected(toolless) as client:
        changed.lm_head.weight.data.zero_()
        changed.config.tie_word_embeddings = True
        changed.save_pretrained(toolless.folder)
        assert first_logprob() > uniform + 1
        untie(changed)
        changed.save_pretrained(toolless.folder)
        assert first_logprob() == pytest.approx(uniform)


def test_a_seed_stops_the_engine_for_good(toolless: ServedModel) -> None:  # the last test of this server
    with connected(toolless) as client:
        assert client.post("/v1/completions", json=greedy([64], seed=1)).status_code == 500
        assert client.post("/v1/completions", json=greedy([64])).status_code == 500
        assert client.get("/health").status_code == 503
