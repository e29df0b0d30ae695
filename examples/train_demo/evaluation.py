"""Play the held-out tasks, by a model or by a script, and count.

The yardstick stays the same however the model is trained: it is sampled here, with temperature 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from orsay_trl import EnvironmentSpec, Episode

__all__ = ["Evaluation", "Policy", "by_looking", "by_model", "evaluate"]

Policy = Callable[[Episode], Awaitable[object]]
"""Plays an open episode to its end."""

_TURNS, _TOKENS = 3, 192


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of an evaluation: ``episodes`` were played; ``faults`` of them were lost and do not count."""

    tasks: int
    episodes: int
    faults: int
    won: int
    reward: float
    """Mean over the episodes that count."""


def evaluate(spec: EnvironmentSpec, policy: Policy, *, times: int) -> Evaluation:
    """Play each task of ``spec.eval_dataset`` that many times, all at the same time.

    Raises RuntimeError when every single episode was lost to a fault.
    """
    rows = list(spec.eval_dataset)
    episodes = [spec.episode(row) for row in rows for _ in range(times)]

    async def play(episode: Episode) -> None:
        await spec.pool.open(episode)
        if episode.fault is None:
            await policy(episode)

    async def play_all() -> None:
        try:
            await asyncio.gather(*(play(episode) for episode in episodes))
        finally:
            await spec.pool.close(episodes)

    spec.run(play_all())
    rewards = [episode.reward for episode in episodes if episode.reward is not None]
    if not rewards:
        raise RuntimeError(f"all {len(episodes)} held-out episodes were lost: {episodes[0].fault}")
    return Evaluation(
        tasks=len(rows),
        episodes=len(episodes),
        faults=len(episodes) - len(rewards),
        won=sum(reward >= spec.success for reward in rewards),
        reward=sum(rewards) / len(rewards),
    )


async def by_looking(episode: Episode) -> None:
    """The optimal script: it opens the door with the word that it saw there."""
    seen = await episode.call("look", {"door": episode.row["door"]})
    await episode.call("open", {"code": seen.text.split()[-1]})


@contextmanager
def by_model(spec: EnvironmentSpec, model: Any, tokenizer: Any) -> Iterator[Policy]:
    """The model's own play of episodes of ``spec``, for as long as the block."""
    # All of these need the extra 'trl'.
    from orsay_trl.rollout.loop import Dialogue, Limits, play_tools
    from orsay_trl.rollout.parse import TurnParser
    from orsay_trl.rollout.tokens import ChatFormat, end_tokens
    from orsay_trl.rollout.transformers import TransformersSampler

    chat = ChatFormat(
        tokenizer, stop_ids=end_tokens(model, tokenizer), template_kwargs={"enable_thinking": False}
    )
    parser = TurnParser(tokenizer)
    limits = Limits(turns=_TURNS, turn_tokens=None, completion=_TOKENS, context=None)
    sampler = TransformersSampler(model, tokenizer)

    async def play(episode: Episode) -> None:
        messages = [{"role": "user", "content": episode.observation}]
        await play_tools(episode, Dialogue(chat, sampler, limits, messages, episode.tools), parser)

    try:
        yield play
    finally:
        spec.run(sampler.aclose())  # on the loop that it sampled on
