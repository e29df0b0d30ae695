"""Run by the real vLLM's own Python: its engine inside this process, made as TRL makes it, and our sampler.

``colocated.py FOLDER`` samples twenty turns at once, gives one up, and prints what came of it as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

TEMPERATURE = 0.7


async def play(generation: Any) -> dict[str, Any]:
    from orsay_trl.rollout.colocate import ColocatedSampler
    from orsay_trl.rollout.sampling import PromptTooLong, Sampling

    sampler = ColocatedSampler(generation, Sampling(temperature=TEMPERATURE))
    prompts = [[5, 6, 7 + number] for number in range(20)]
    samples = await asyncio.gather(
        *(sampler.sample(prompt, max_tokens=5 + number) for number, prompt in enumerate(prompts))
    )
    given_up = asyncio.create_task(sampler.sample([5, 6], max_tokens=400))
    await asyncio.sleep(0)  # it is under way, and cannot be over
    given_up.cancel()
    await asyncio.wait([given_up])
    after = await sampler.sample([5, 6], max_tokens=3)
    try:
        await sampler.sample([5] * 512, max_tokens=1)
        too_long = ""
    except PromptTooLong as exc:
        too_long = str(exc)
    left = generation.llm.llm_engine.has_unfinished_requests()
    await sampler.aclose()
    return {
        "prompts": prompts,
        "samples": [[sample.token_ids, sample.logprobs, sample.finish_reason] for sample in samples],
        "given_up": given_up.cancelled(),
        "after": len(after.token_ids),
        "left": left,
        "too_long": too_long,
    }


if __name__ == "__main__":
    from vllm import LLM

    engine = LLM(
        model=sys.argv[1],
        dtype="float32",
        enforce_eager=True,
        max_model_len=512,
        logprobs_mode="processed_logprobs",
        distributed_executor_backend="external_launcher",
    )
    print("RESULT " + json.dumps(asyncio.run(play(SimpleNamespace(llm=engine, tensor_parallel_size=1)))))
