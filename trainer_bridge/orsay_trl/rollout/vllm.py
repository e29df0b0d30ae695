"""Sampling from a vLLM server over ``/v1/completions``: token ids go in, token ids and logprobs come out.

The server should run with ``--logprobs-mode processed_logprobs``; if that makes a difference, the first
request checks it. Every answer is validated against its request before it is used for training.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

from orsay_client.errors import ConnectionLost, ProtocolError, ResultTooLarge
from orsay_client.redact import Redact
from orsay_client.retry import Attempts, Retry
from orsay_client.transport import Answer, Transport, Verify
from pydantic import BaseModel, ValidationError

from .sampling import PromptTooLong, Sample, SamplerError, Sampling

__all__ = [
    "PromptChanged",
    "RawLogprobs",
    "RequestRefused",
    "ServerLost",
    "UnknownModel",
    "UnusableAnswer",
    "VLLMSampler",
    "server_url",
]

_Parsed = TypeVar("_Parsed", bound=BaseModel)

_MAX_ANSWER_BYTES = 256 * 1024 * 1024
_ROUNDING = 1e-3  # of the logprob of a certain token


class ServerLost(SamplerError):
    """The server is unreachable or fails, also after all retries."""


class RequestRefused(SamplerError):
    """The server refused the request."""


class UnknownModel(SamplerError):
    """The server does not serve the model of that name; the message names those it serves."""


class UnusableAnswer(SamplerError):
    """The answer lacks what training needs: ids, one logprob for each, or the echoed prompt."""


class PromptChanged(UnusableAnswer):
    """The server continued another prompt than the one that was sent."""


class RawLogprobs(UnusableAnswer):
    """The server returns logprobs of another distribution than the sampled one."""


class _Logprobs(BaseModel):
    token_logprobs: list[float]


class _Choice(BaseModel):
    finish_reason: str | None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None


class _Completion(BaseModel):
    choices: list[_Choice]


class _Model(BaseModel):
    id: str
    max_model_len: int | None = None


class _Models(BaseModel):
    data: list[_Model]


class VLLMSampler:
    """Samples from one vLLM server; belongs to the event loop of its first request.

    The first ``sample`` (or ``open``, or ``async with``) asks the server for its models, which sets ``model``
    where none was named and ``max_model_len``. A broken connection, 429, 502, 503 and 504 are tried again:
    sampling twice is harmless. No seed is ever sent.

    Args:
        base_url: ``http://host:8000``, with or without ``/v1``.
        model: The name under which the server serves it; by default the first of its list.
        sampling: Sent whole: the server would fill gaps from the model's ``generation_config.json``.
        api_key: Sent as a bearer token; never part of a message.
        concurrency: Requests in flight at most; more wait here rather than in the server.
        timeout_s: How long one request may take, queueing in the server included.
        retry: Bounds of trying again.
        verify: Certificates of an https server, as httpx takes them.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        sampling: Sampling | None = None,
        api_key: str | None = None,
        *,
        concurrency: int = 256,
        timeout_s: float = 600.0,
        retry: Retry | None = None,
        verify: Verify = True,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1; got {concurrency}")
        self.max_model_len: int | None = None
        self.model = model
        self.sampling = sampling or Sampling()
        self._transport = Transport(
            server_url(base_url),
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout_s=timeout_s,
            max_answer_bytes=_MAX_ANSWER_BYTES,
            verify=verify,
        )
        self._redact = Redact([api_key])
        self._retry = retry or Retry()
        self._slots = asyncio.Semaphore(concurrency)
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened = False

    async def open(self) -> None:
        """Ask the server for its models; raises UnknownModel, ServerLost. Nothing happens the second time."""
        self._hold_loop()
        async with self._opening:
            if self._opened:
                return
            served = _parsed(_Models, await self._send("GET", "/v1/models", None)).data
            names = [model.id for model in served]
            if self.model is None and names:
                self.model = names[0]
            found = next((model for model in served if model.id == self.model), None)
            if found is None:
                raise UnknownModel(self._unknown(names))
            if _is_filtered(self.sampling):
                await self._check_logprobs()
            self.max_model_len = found.max_model_len
            self._opened = True

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Sample:
        """Continue ``prompt_ids``; the server stops by itself at its context limit (``length``).

        Raises PromptTooLong, PromptChanged, RawLogprobs, RequestRefused, ServerLost, UnknownModel,
        UnusableAnswer.
        """
        if not prompt_ids:
            raise ValueError("a prompt needs at least one token")
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1; got {max_tokens}")
        if not self._opened:
            await self.open()
        self._hold_loop()
        sent = list(prompt_ids)
        if self.max_model_len is not None and len(sent) >= self.max_model_len:
            raise PromptTooLong(_too_long(len(sent), self.max_model_len))
        async with self._slots:
            answer = await self._send("POST", "/v1/completions", self._body(sent, max_tokens))
        return self._sample(answer, sent, max_tokens)

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _hold_loop(self) -> None:
        running = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = running
        elif self._loop is not running:
            raise RuntimeError(
                "this sampler holds connections of another event loop; "
                "make one sampler per loop, or keep to one loop"
            )

    def _body(self, prompt_ids: list[int], max_tokens: int) -> dict[str, Any]:
        wanted = self.sampling
        return {
            "model": self.model,
            "prompt": prompt_ids,
            "max_tokens": max_tokens,
            "n": 1,
            "temperature": wanted.temperature,
            "top_p": wanted.top_p,
            "top_k": wanted.top_k or 0,
            "min_p": wanted.min_p,
            "repetition_penalty": wanted.repetition_penalty,
            "stop_token_ids": list(wanted.stop_token_ids),
            "logprobs": 0,  # of the sampled token only
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,  # cheaper to make than text, and they never collide
        }

    async def _check_logprobs(self) -> None:
        """Check that log probabilities are those of the sampled distribution: with one candidate it has 0,
        the raw one hardly ever.
        """
        body = {**self._body([0], 1), "top_k": 1, "temperature": self.sampling.temperature or 1.0}
        choice = self._choice(await self._send("POST", "/v1/completions", body), [0])
        assert choice.logprobs is not None
        if any(abs(logprob) > _ROUNDING for logprob in choice.logprobs.token_logprobs):
            raise RawLogprobs(
                f"vLLM at {self._transport.address} answers raw logprobs, which differ from the "
                f"distribution sampled from under {self.sampling}; "
                "start it with --logprobs-mode processed_logprobs"
            )

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        attempts = Attempts(self._retry)
        while True:
            delay_s: float | None
            try:
                answer = await self._transport.send(method, path, body=body)
            except ConnectionLost as exc:
                delay_s = attempts.after_break()
                if delay_s is None:
                    raise ServerLost(
                        f"vLLM cannot be reached, {attempts.failures} times in a row: {exc}"
                    ) from exc
            except (ProtocolError, ResultTooLarge) as exc:
                raise UnusableAnswer(str(exc)) from exc
            else:
                if answer.status == 200:
                    return answer
                delay_s = attempts.after_answer(answer.status, answer.headers)
                if delay_s is None:
                    raise await self._refusal(f"{method} {self._transport.address}{path}", answer, body)
            await asyncio.sleep(delay_s)

    async def _refusal(self, asked: str, answer: Answer, body: Mapping[str, Any] | None) -> SamplerError:
        message, parameter = _error_of(answer, self._redact)
        what = f"{asked} answered {answer.status}: {message}"
        if answer.status == 404 and parameter == "model":
            return UnknownModel(self._unknown([], message))
        if (
            answer.status == 400
            and body is not None
            and (parameter == "input_tokens" or "maximum context length" in message)
        ):
            return PromptTooLong(f"the prompt has {len(body['prompt'])} tokens: {message}")
        if answer.status >= 500 or answer.status == 429:
            return ServerLost(f"{what}; the server's own log has more")
        if answer.status in (401, 403):
            return RequestRefused(f"{what}; pass the server's --api-key as api_key")
        if answer.status == 404:
            return RequestRefused(f"{what}; is this a vLLM server?")
        return RequestRefused(what)

    def _unknown(self, names: Sequence[str], message: str = "") -> str:
        there = message or f"it serves {', '.join(names) or 'no model'}"
        return f"vLLM at {self._transport.address} does not serve {self.model!r}: {there}"

    def _sample(self, answer: Answer, sent: list[int], max_tokens: int) -> Sample:
        choice = self._choice(answer, sent)
        assert choice.token_ids is not None and choice.logprobs is not None
        reason: Literal["stop", "length"]
        if choice.finish_reason == "stop":
            reason = "stop"
        elif choice.finish_reason == "length":
            reason = "length"
        else:
            raise ServerLost(
                f"vLLM at {self._transport.address} ended a completion with {choice.finish_reason!r} "
                "instead of 'stop' or 'length'; the server's own log has the reason"
            )
        if len(choice.token_ids) > max_tokens:
            raise UnusableAnswer(
                f"vLLM answered {len(choice.token_ids)} tokens where {max_tokens} were allowed"
            )
        return Sample(choice.token_ids, choice.logprobs.token_logprobs, reason)

    def _choice(self, answer: Answer, sent: list[int]) -> _Choice:
        choices = _parsed(_Completion, answer).choices
        if len(choices) != 1:
            raise UnusableAnswer(f"vLLM answered {len(choices)} completions where one was asked for")
        (choice,) = choices
        if choice.token_ids is None or choice.prompt_token_ids is None:
            raise UnusableAnswer(
                "vLLM answered no token ids although return_token_ids was asked for; use vLLM 0.32 or newer"
            )
        if choice.prompt_token_ids != sent:
            at = next(
                (
                    at
                    for at, (one, two) in enumerate(zip(choice.prompt_token_ids, sent, strict=False))
                    if one != two
                ),
                min(len(choice.prompt_token_ids), len(sent)),
            )
            raise PromptChanged(
                f"vLLM continued another prompt than was sent: {len(choice.prompt_token_ids)} tokens "
                f"instead of {len(sent)}, different from position {at} on"
            )
        logprobs = choice.logprobs.token_logprobs if choice.logprobs else []
        if not choice.token_ids or len(logprobs) != len(choice.token_ids):
            raise UnusableAnswer(
                f"vLLM answered {len(choice.token_ids)} token ids and {len(logprobs)} logprobs; "
                "training needs at least one id and a logprob for each"
            )
        if not all(map(math.isfinite, logprobs)):
            raise UnusableAnswer("vLLM answered a logprob that is no finite number; are the weights broken?")
        return choice


def server_url(base_url: str) -> str:
    """Root URL of a server, from a URL that may end in ``/v1``, as for OpenAI clients."""
    return base_url.rstrip("/").removesuffix("/v1")


def _is_filtered(sampling: Sampling) -> bool:
    """True for a distribution other than the model's own."""
    return sampling.temperature != 0 and (
        sampling.temperature != 1
        or sampling.top_p < 1
        or bool(sampling.top_k)
        or sampling.min_p > 0
        or sampling.repetition_penalty != 1
    )


def _too_long(length: int, limit: int) -> str:
    return f"the prompt has {length} tokens and the model's context is {limit}: no room for a single token"


def _parsed(kind: type[_Parsed], answer: Answer) -> _Parsed:
    try:
        return kind.model_validate_json(answer.body)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UnusableAnswer(f"the answer is not vLLM's: {where}: {first['msg']}") from exc


def _error_of(answer: Answer, redact: Redact) -> tuple[str, str | None]:
    """Message and parameter of an error, in vLLM's format or any other."""
    try:
        error = json.loads(answer.body)["error"]
        return redact(str(error["message"])), error.get("param")
    except (ValueError, KeyError, TypeError, AttributeError):
        return redact(answer.body.decode(errors="replace"))[:500] or "no text", None
