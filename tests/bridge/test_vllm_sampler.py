"""The sampler over a vLLM server: what it sends, what it refuses to believe, and how it fails."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay_client.retry import Retry
from orsay_trl.rollout.sampling import PromptTooLong, Sample, SamplerError, Sampling
from orsay_trl.rollout.vllm import (
    PromptChanged,
    RawLogprobs,
    RequestRefused,
    ServerLost,
    UnknownModel,
    UnusableAnswer,
    VLLMSampler,
    server_url,
)

from tests.support.cut_proxy import CutProxy
from tests.support.scripted_server import Reply, Request, ScriptedServer

from ..support.model_server.processes import ServedModel, serve_model

pytestmark = pytest.mark.process

QUICK = Retry(tries=3, first_delay_s=0.01, max_delay_s=0.02)
GREEDY = Sampling(temperature=0)
END = 693


@pytest.fixture(scope="module")
def guarded(model_folder: Path) -> Iterator[ServedModel]:
    with serve_model(model_folder, api_key="s3cret") as served:
        yield served


def sampler(
    url: str, model: str | None = None, sampling: Sampling | None = None, **options: Any
) -> VLLMSampler:
    return VLLMSampler(url, model, sampling, retry=QUICK, **options)


async def test_a_sample_holds_the_sampled_ids_with_the_end_token_and_a_logprob_for_each(
    model_server: ServedModel,
) -> None:
    async with sampler(model_server.base_url, sampling=GREEDY) as vllm:
        ended = await vllm.sample([64, 65, 66], max_tokens=50)
        cut = await vllm.sample([64, 65, 66], max_tokens=2)
    assert ended.finish_reason == "stop" and ended.token_ids[-1] == END
    assert cut.finish_reason == "length" and cut.token_ids == ended.token_ids[:2]
    assert cut.logprobs == pytest.approx(ended.logprobs[:2], abs=1e-4)
    assert len(ended.logprobs) == len(ended.token_ids) and all(logprob <= 0 for logprob in ended.logprobs)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_first_request_finds_the_model_and_its_context(
    model_server: ServedModel, suffix: str
) -> None:
    vllm = sampler(model_server.base_url + suffix)
    known: list[object] = [vllm.model, vllm.max_model_len]
    try:
        await vllm.sample([64], max_tokens=1)
    finally:
        await vllm.aclose()
    assert [*known, vllm.model, vllm.max_model_len] == [None, None, "tiny", 4096]


async def test_models_are_asked_for_once_however_many_start_together(model_server: ServedModel) -> None:
    model_server.seen()
    async with sampler(model_server.base_url) as vllm:
        await asyncio.gather(*(vllm.sample([64], max_tokens=1) for _ in range(10)))
    assert model_server.seen()["requests"] == {"/v1/models": 1, "/v1/completions": 10}


async def test_all_sampling_settings_are_sent_and_a_seed_never(model_server: ServedModel) -> None:
    wanted = Sampling(1.5, 0.9, 7, 0.01, 1.1, (5,))
    for sampling, top_k in ((Sampling(), 0), (wanted, 7)):
        async with sampler(model_server.base_url, sampling=sampling) as vllm:
            await vllm.sample([64, 65], max_tokens=3)
        assert model_server.seen()["last"] == {
            "model": "tiny",
            "prompt": [64, 65],
            "max_tokens": 3,
            "n": 1,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": top_k,
            "min_p": sampling.min_p,
            "repetition_penalty": sampling.repetition_penalty,
            "stop_token_ids": list(sampling.stop_token_ids),
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }


async def test_a_stop_token_ends_the_turn(model_server: ServedModel) -> None:
    async with sampler(model_server.base_url, sampling=Sampling(0, stop_token_ids=(416,))) as vllm:
        made = await vllm.sample([64, 65, 66], max_tokens=50)
    assert made.finish_reason == "stop" and made.token_ids[-1] == 416


async def test_no_more_requests_than_allowed_are_in_flight(model_server: ServedModel) -> None:
    model_server.seen()
    async with sampler(model_server.base_url, sampling=GREEDY, concurrency=3) as vllm:
        made = await asyncio.gather(*(vllm.sample([64, at], max_tokens=20) for at in range(12)))
    assert len({tuple(one.token_ids) for one in made}) > 1
    assert 1 < model_server.seen()["most_at_once"] <= 3


async def test_a_prompt_without_room_for_a_token_is_distinguished(model_server: ServedModel) -> None:
    async with sampler(model_server.base_url) as vllm:
        with pytest.raises(PromptTooLong, match="4096 tokens and the model's context is 4096"):
            await vllm.sample([64] * 4096, max_tokens=1)
        assert len((await vllm.sample([64] * 4095, max_tokens=5)).token_ids) == 1
        vllm.max_model_len = None  # as with a server that does not say
        with pytest.raises(PromptTooLong, match="4097"):
            await vllm.sample([64] * 4097, max_tokens=1)


async def test_an_unknown_model_is_refused_with_those_that_are_served(model_server: ServedModel) -> None:
    vllm = sampler(model_server.base_url, "large")
    with pytest.raises(UnknownModel, match="does not serve 'large': it serves tiny"):
        await vllm.sample([64], max_tokens=1)
    await vllm.aclose()
    async with sampler(model_server.base_url) as vllm:
        vllm.model = "gone"  # served before, not any more
        with pytest.raises(UnknownModel, match=r"'gone'.*Valid aliases: tiny"):
            await vllm.sample([64], max_tokens=1)


async def test_a_wrong_request_is_not_repeated_and_the_server_is_quoted(model_server: ServedModel) -> None:
    async with sampler(model_server.base_url) as vllm:
        model_server.seen()
        with pytest.raises(RequestRefused, match="answered 400: Token id 100000 is out of vocabulary"):
            await vllm.sample([100000], max_tokens=1)
    assert model_server.seen()["requests"] == {"/v1/completions": 1}


@pytest.mark.parametrize(("prompt", "max_tokens"), [([], 1), ([64], 0)])
async def test_an_impossible_request_is_not_sent(
    model_server: ServedModel, prompt: list[int], max_tokens: int
) -> None:
    async with sampler(model_server.base_url) as vllm:
        with pytest.raises(ValueError, match="at least"):
            await vllm.sample(prompt, max_tokens=max_tokens)


async def test_the_api_key_opens_and_never_shows(guarded: ServedModel) -> None:
    async with sampler(guarded.base_url, api_key="s3cret") as vllm:
        await vllm.sample([64], max_tokens=1)
    for key in (None, "other-key"):
        vllm = sampler(guarded.base_url, api_key=key)
        with pytest.raises(RequestRefused, match=r"401.*api_key") as refused:
            await vllm.open()
        assert "other-key" not in str(refused.value)
        await vllm.aclose()


async def test_a_dead_engine_stops_everything(guarded: ServedModel) -> None:  # the last test of this server
    async with sampler(guarded.base_url, api_key="s3cret") as vllm:
        async with httpx.AsyncClient(headers={"Authorization": "Bearer s3cret"}, trust_env=False) as http:
            await http.post(f"{guarded.base_url}/v1/completions", json={"prompt": [64], "seed": 1})
        with pytest.raises(ServerLost, match="500"):
            await vllm.sample([64], max_tokens=1)


@pytest.mark.parametrize("times", [1, 2])
async def test_broken_connections_are_tried_again(model_server: ServedModel, times: int) -> None:
    async with CutProxy(model_server.base_url) as proxy, sampler(proxy.url, sampling=GREEDY) as vllm:
        proxy.cut(b"POST /v1/completions", times=times)
        made = await vllm.sample([64, 65, 66], max_tokens=50)
        assert proxy.cuts == times
    assert made.token_ids[-1] == END


async def test_a_server_that_stays_away_is_named(model_server: ServedModel) -> None:
    async with CutProxy(model_server.base_url) as proxy, sampler(proxy.url) as vllm:
        proxy.cut(b"POST /v1/completions", times=99)
        with pytest.raises(ServerLost, match=f"3 times in a row: POST {proxy.url}/v1/completions"):
            await vllm.sample([64], max_tokens=1)
        assert proxy.cuts == 3
    vllm = sampler(proxy.url)
    with pytest.raises(ServerLost, match="is a server running there"):
        await vllm.open()
    await vllm.aclose()


def test_another_event_loop_is_refused_with_a_reason(model_server: ServedModel) -> None:
    vllm = sampler(model_server.base_url)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(vllm.sample([64], max_tokens=1))
        with pytest.raises(RuntimeError, match="another event loop"):
            second.run(vllm.sample([64], max_tokens=1))
        first.run(vllm.aclose())


# What no real server does on request: answers that must not be trained on.

Change = Callable[[dict[str, Any]], object]


def lying(change: Change) -> Callable[[Request, Reply], Awaitable[None]]:
    async def handle(request: Request, reply: Reply) -> None:
        if request.path == "/v1/models":
            await reply.json({"data": [{"id": "m", "max_model_len": 64}]})
            return
        prompt = request.json()["prompt"]
        choice: dict[str, Any] = {
            "finish_reason": "stop",
            "token_ids": [7, 8],
            "prompt_token_ids": prompt,
            "logprobs": {"token_logprobs": [-0.5, -0.25]},
        }
        change(choice)
        await reply.json({"choices": [choice]})

    return handle


async def test_the_plain_answer_of_the_lying_server_is_believed() -> None:
    async with ScriptedServer(lying(lambda choice: None)) as server, sampler(server.url) as vllm:
        assert await vllm.sample([1, 2], max_tokens=2) == Sample([7, 8], [-0.5, -0.25], "stop")


async def test_a_cancelled_sample_gives_its_place_back() -> None:
    plain, arrived = lying(lambda choice: None), asyncio.Event()

    async def handle(request: Request, reply: Reply) -> None:
        if len(server.sent("/v1/completions")) == 1:
            arrived.set()
            await asyncio.Event().wait()
        await plain(request, reply)

    server = ScriptedServer(handle)
    async with server, sampler(server.url, concurrency=1) as vllm:
        task = asyncio.create_task(vllm.sample([1], max_tokens=2))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await vllm.sample([1], max_tokens=2)).token_ids == [7, 8]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda c: c.update(prompt_token_ids=[1, 2, 4]), PromptChanged, "different from position 2"),
        (lambda c: c.update(prompt_token_ids=[1, 2]), PromptChanged, "2 tokens instead of 3"),
        (lambda c: c.update(prompt_token_ids=None), UnusableAnswer, "return_token_ids"),
        (lambda c: c.pop("token_ids"), UnusableAnswer, "return_token_ids"),
        (lambda c: c.update(token_ids=[]), UnusableAnswer, "0 token ids and 2 logprobs"),
        (lambda c: c.update(token_ids=[7]), UnusableAnswer, "1 token ids and 2 logprobs"),
        (lambda c: c.update(logprobs=None), UnusableAnswer, "2 token ids and 0 logprobs"),
        (lambda c: c["logprobs"].update(token_logprobs=[-1, None]), UnusableAnswer, "token_logprobs"),
        (lambda c: c["logprobs"].update(token_logprobs=[-1, float("nan")]), UnusableAnswer, "finite|JSON"),
        (
            lambda c: c.update(token_ids=[7, 8, 9], logprobs={"token_logprobs": [-1.0] * 3}),
            UnusableAnswer,
            "3 tokens",
        ),
        (lambda c: c.update(finish_reason="abort"), ServerLost, "'abort'"),
    ],
)
async def test_an_answer_that_would_spoil_training_is_an_error(
    change: Change, kind: type[SamplerError], message: str
) -> None:
    async with ScriptedServer(lying(change)) as server, sampler(server.url) as vllm:
        with pytest.raises(kind, match=message):
            await vllm.sample([1, 2, 3], max_tokens=2)
    assert len(server.sent("/v1/completions")) == 1


@pytest.mark.parametrize(
    ("sampling", "asked"),
    [(Sampling(temperature=0.7), True), (Sampling(top_p=0.9), True), (Sampling(), False)],
)
async def test_raw_logprobs_are_noticed_where_they_would_be_wrong(sampling: Sampling, asked: bool) -> None:
    async with ScriptedServer(lying(lambda choice: None)) as server:
        vllm = sampler(server.url, sampling=sampling)
        if asked:
            with pytest.raises(RawLogprobs, match="--logprobs-mode processed_logprobs"):
                await vllm.open()
        else:
            await vllm.open()
        await vllm.aclose()
    assert [request.json()["top_k"] for request in server.sent("/v1/completions")] == [1] * asked


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_busy_server_is_asked_again(status: int) -> None:
    plain = lying(lambda choice: None)

    async def handle(request: Request, reply: Reply) -> None:
        if len(server.sent("/v1/completions")) == 1:
            await reply.json({"error": {"message": "later", "code": status}}, status)
        else:
            await plain(request, reply)

    server = ScriptedServer(handle)
    async with server, sampler(server.url) as vllm:
        assert (await vllm.sample([1], max_tokens=2)).token_ids == [7, 8]
    assert len(server.sent("/v1/completions")) == 2


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": 3}', b'{"data": []}'])
async def test_something_else_than_vllm_is_recognised(body: bytes) -> None:
    async def handle(request: Request, reply: Reply) -> None:
        await reply.raw(body)

    async with ScriptedServer(handle) as server:
        vllm = sampler(server.url)
        with pytest.raises((UnusableAnswer, UnknownModel), match=r"not vLLM's|no model"):
            await vllm.open()
        await vllm.aclose()


def test_settings_out_of_range_are_refused() -> None:
    wrongs: list[dict[str, Any]]
    wrongs = [{"temperature": -1}, {"top_p": 0}, {"top_k": -1}, {"min_p": 2}, {"repetition_penalty": 0}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Sampling(**wrong)
    with pytest.raises(ValueError, match="concurrency"):
        VLLMSampler("http://localhost", concurrency=0)


def test_errors_survive_pickling() -> None:
    for kind in (PromptTooLong, PromptChanged, RawLogprobs, RequestRefused, ServerLost, UnknownModel):
        assert str(pickle.loads(pickle.dumps(kind("said so")))) == "said so"
        assert issubclass(kind, SamplerError)


def test_a_url_may_end_as_openai_clients_want_it() -> None:
    assert server_url("http://host:8000/v1/") == server_url("http://host:8000") == "http://host:8000"
