"""Metrics of a batch of episodes in a trainer's log. The names are explained in docs/training.md."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..play.environment import LiveEnvironment
from ..play.episode import Episode
from ..play.pool import EpisodePool
from .environment import RolloutEnvironment
from .processes import everywhere

__all__ = ["episode_metrics", "log", "log_episodes"]


def log(
    scored: Sequence[tuple[RolloutEnvironment, float | None]], log_metric: Callable[[str, float], None]
) -> None:
    """Log each episode's numbers, and how long training waited; TRL averages over batch and processes."""
    log_episodes([(e.live, e.episode, reward) for e, reward in scored if e.episode is not None], log_metric)
    for live in {id(e.live): e.live for e, _ in scored if e.episode is not None}.values():
        _log_times(live.pool, live.metrics_prefix, log_metric)


def log_episodes(
    played: Sequence[tuple[LiveEnvironment, Episode, float | None]], log_metric: Callable[[str, float], None]
) -> None:
    """The same for episodes with their rewards. Where several processes train, all of them must call it."""
    here = [(live.metrics_prefix, episode) for live, episode, _ in played]
    tools = _names((prefix, step.tool) for prefix, episode in here for step in episode.steps)
    faults = _names((prefix, episode.fault) for prefix, episode in here if episode.fault is not None)
    for live, episode, reward in played:
        prefix = live.metrics_prefix
        numbers = episode_metrics(
            episode,
            reward,
            success=live.options.success,
            tools=tools.get(prefix, ()),
            faults=faults.get(prefix, ()),
        )
        for name, value in numbers.items():
            if math.isfinite(value):  # a non-finite value would spoil the batch's mean
                log_metric(prefix + name, value)


def _names(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names under each prefix in the batches of all processes: a mean over all needs the zeros of all."""
    names = {pair for pairs in everywhere(sorted(set(found))) for pair in map(tuple, pairs)}
    return {prefix: sorted(name for at, name in names if at == prefix) for prefix, _ in names}


def episode_metrics(
    episode: Episode,
    reward: float | None,
    *,
    success: float,
    tools: Sequence[str] = (),
    faults: Sequence[str] = (),
) -> dict[str, float]:
    """Numbers of one episode by name. An episode lost to a fault has no reward, no success and no length."""
    found: dict[str, float] = {
        "faults": float(episode.fault is not None),
        "retries": float(len(episode.retried)),
        "seconds": episode.seconds,
    }
    found |= {f"faults/{name}": float(episode.fault == name) for name in faults}
    if episode.fault is not None:
        return found
    found["length"] = float(len(episode.steps))
    found["finished"] = float(episode.finished)
    if reward is not None:
        found["reward"] = reward
        found["success"] = float(reward >= success)
    calls = Counter(step.tool for step in episode.steps)
    for tool in tools:
        found[f"calls/{tool}"] = float(calls[tool])
        rewards = [s.output.reward for s in episode.steps if s.tool == tool and s.output is not None]
        if any(value is not None for value in rewards):
            found[f"reward/{tool}"] = sum(value for value in rewards if value is not None)
    found["refused"] = float(sum(step.output is None for step in episode.steps))
    return found | _components(episode)


def _components(episode: Episode) -> dict[str, float]:
    """Numbers in ``metadata["rewards"]`` of the last call that has them."""
    for metadata in reversed(episode.metadata):
        parts: Any = (metadata or {}).get("rewards")
        if isinstance(parts, Mapping):
            return {
                f"reward/{name}": float(value)
                for name, value in parts.items()
                if isinstance(value, int | float)
            }
    return {}


def _log_times(pool: EpisodePool, prefix: str, log_metric: Callable[[str, float], None]) -> None:
    """Log the time since the last batch that training waited for the environment, and its share."""
    now, waited = time.perf_counter(), pool.waited_s
    began, before = pool.metered
    pool.metered = (now, waited)
    log_metric(prefix + "wait_s", waited - before)
    log_metric(prefix + "wait_share", (waited - before) / max(now - began, 1e-9))
