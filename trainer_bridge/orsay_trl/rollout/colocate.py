"""Sampling with the vLLM engine that TRL runs inside the trainer's process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

from ..trainer._trl import weights_asleep, weights_discarded
from .sampling import PromptTooLong, Sample, Sampling

__all__ = ["ColocatedSampler"]


class ColocatedSampler:
    """Samples with TRL's colocated engine, with continuous batching: requests join at the engine's next step.

    TRL itself generates for a whole batch and waits for its longest turn. Here each rollout continues as soon
    as its own turn is complete.

    Args:
        generation: ``trainer.vllm_generation`` with ``vllm_mode="colocate"``; anything with its ``llm``.
        sampling: How tokens are drawn.

    Raises ValueError for an engine with several processes: they would have to make each step together, and
    their rollouts do not take the same steps.
    """

    def __init__(self, generation: Any, sampling: Sampling | None = None) -> None:
        if getattr(generation, "tensor_parallel_size", 1) > 1:
            raise ValueError(
                "rollout functions cannot share a colocated engine of several processes; use "
                "vllm_tensor_parallel_size=1, or vLLM as a server (vllm_mode='server')"
            )
        self.sampling = sampling or Sampling()
        self._generation = generation
        self._engine = generation.llm.llm_engine
        self.max_model_len: int | None = int(self._engine.model_config.max_model_len)
        self._numbers = itertools.count()
        self._waiting: list[tuple[str, list[int], int]] = []
        self._dropped: list[str] = []
        self._answers: dict[str, asyncio.Future[Sample]] = {}
        self._drive: asyncio.Task[None] | None = None
        # The engine may be used by one thread at a time, and is synchronous.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="orsay-engine")

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Context of a batch, on the trainer's thread: in sleep mode, the engine has memory only here."""
        generation = self._generation
        if not getattr(generation, "enable_sleep_mode", False):
            yield
            return
        if weights_asleep(generation):  # sleeping discards them, even if the step has not changed
            generation.sync_weights()
        generation.llm.wake_up(tags=["kv_cache"])
        try:
            yield
        finally:
            generation.llm.sleep(level=2)
            weights_discarded(generation)

    async def sample(self, prompt_ids: Sequence[int], *, max_tokens: int) -> Sample:
        """Continue ``prompt_ids``. Raises PromptTooLong, and what the engine raises."""
        if not prompt_ids:
            raise ValueError("a prompt needs at least one token")
        if max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1; got {max_tokens}")
        if self.max_model_len is not None and len(prompt_ids) >= self.max_model_len:
            raise PromptTooLong(
                f"the prompt has {len(prompt_ids)} tokens and the engine's context is {self.max_model_len}: "
                "no room for a single token"
            )
        number = f"orsay-{next(self._numbers)}"
        answer: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._waiting.append((number, list(prompt_ids), max_tokens))
        if self._drive is None or self._drive.done():
            self._drive = asyncio.create_task(self._run())
        try:
            return await answer
        finally:
            if self._answers.pop(number, None) is not None and answer.cancelled():
                self._dropped.append(number)

    async def aclose(self) -> None:
        """Abort requests and end the thread; safe to call twice. TRL owns the engine."""
        for answer in list(self._answers.values()):
            answer.cancel()
        drive, self._drive = self._drive, None
        if drive is not None:
            await asyncio.wait([drive])
        self._executor.shutdown(wait=False)

    async def _run(self) -> None:
        """Step the engine as long as requests wait."""
        loop = asyncio.get_running_loop()
        while self._answers or self._dropped:
            new, self._waiting = self._waiting, []
            gone, self._dropped = self._dropped, []
            try:
                ended = await loop.run_in_executor(self._executor, self._step, new, gone)
            except Exception as exc:
                for answer in self._answers.values():
                    if not answer.done():
                        answer.set_exception(exc)
                return
            for number, sample in ended:
                answer_ = self._answers.get(number)
                if answer_ is not None and not answer_.done():
                    answer_.set_result(sample)
            await asyncio.sleep(0)  # lets answered rollouts submit their next request

    def _step(
        self, new: Sequence[tuple[str, list[int], int]], gone: Sequence[str]
    ) -> list[tuple[str, Sample]]:
        for number, prompt_ids, max_tokens in new:
            if number not in gone:
                self._engine.add_request(
                    number, {"prompt_token_ids": prompt_ids}, self._parameters(max_tokens)
                )
        old = [number for number in gone if number not in {number for number, *_ in new}]
        if old:
            self._engine.abort_request(old)
        if not self._engine.has_unfinished_requests():
            return []
        return [(output.request_id, _sample(output)) for output in self._engine.step() if output.finished]

    def _parameters(self, max_tokens: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        wanted = self.sampling
        return SamplingParams(
            n=1,
            temperature=wanted.temperature,
            top_p=wanted.top_p,
            top_k=wanted.top_k or 0,
            min_p=wanted.min_p,
            repetition_penalty=wanted.repetition_penalty,
            stop_token_ids=list(wanted.stop_token_ids),
            max_tokens=max_tokens,
            logprobs=0,  # of the sampled token only
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )


def _sample(output: Any) -> Sample:
    completion = output.outputs[0]
    ids = list(completion.token_ids)
    logprobs = [step[token].logprob for token, step in zip(ids, completion.logprobs, strict=True)]
    reason: Literal["stop", "length"] = "stop" if completion.finish_reason == "stop" else "length"
    return Sample(ids, logprobs, reason)
