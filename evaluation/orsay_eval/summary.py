"""Summary of an evaluation, computed from its episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from orsay_protocol.evaluation import EvaluatedEpisode, EvaluationSummary, TokenCounts

from .statistics import estimate, pass_estimate, quantiles

__all__ = ["by_task", "ks", "summarize"]


def by_task(episodes: Iterable[EvaluatedEpisode]) -> dict[str, list[EvaluatedEpisode]]:
    """Scored episodes, task by task."""
    found: dict[str, list[EvaluatedEpisode]] = {}
    for episode in episodes:
        if episode.reward is not None:
            found.setdefault(episode.task, []).append(episode)
    return found


def ks(k: int) -> list[int]:
    """Numbers of attempts for pass@k: powers of two, and ``k`` itself."""
    found = [1]
    while found[-1] * 2 < k:
        found.append(found[-1] * 2)
    return found if found[-1] == k else [*found, k]


def summarize(
    episodes: Sequence[EvaluatedEpisode],
    *,
    n_tasks: int,
    k: int,
    success: float,
    latencies: Sequence[float] = (),
    wall_seconds: float = 0.0,
) -> EvaluationSummary:
    """Summarise episodes; ``latencies`` are seconds of single answers of the model."""
    tasks = by_task(episodes).values()
    right = [(len(played), sum(bool(episode.success) for episode in played)) for played in tasks]
    scored = [episode for episode in episodes if episode.fault is None]
    passes = [pass_estimate(right, number) for number in ks(k)]
    return EvaluationSummary(
        n_tasks=n_tasks,
        k=k,
        episodes=len(episodes),
        planned=n_tasks * k,
        scored=len(scored),
        mean_reward=estimate([[e.reward for e in played if e.reward is not None] for played in tasks]),
        success=estimate([[float(bool(e.success)) for e in played] for played in tasks]),
        success_threshold=success,
        pass_at_k=[found for found in passes if found is not None],
        faults=dict(Counter(e.fault for e in episodes if e.fault is not None).most_common()),
        retried=dict(Counter(kind for e in episodes for kind in e.retried).most_common()),
        stops=dict(Counter(episode.stop for episode in scored).most_common()),
        tokens=TokenCounts(
            input=sum(episode.tokens.input for episode in episodes),
            output=sum(episode.tokens.output for episode in episodes),
            cached=sum(episode.tokens.cached for episode in episodes),
            reasoning=sum(episode.tokens.reasoning for episode in episodes),
        ),
        turns=quantiles([float(episode.turns) for episode in scored]),
        latency=quantiles(latencies),
        seconds=quantiles([episode.seconds for episode in scored]),
        wall_seconds=wall_seconds,
    )
