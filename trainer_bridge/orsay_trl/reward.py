"""From the rewards of an episode's calls to the one number that a trainer wants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from .episode import Episode

__all__ = ["Discounted", "RewardPolicy", "discounted", "reduce_rewards"]


@dataclass(frozen=True, slots=True)
class Discounted:
    """The return of an episode: the sum of ``gamma ** t`` times the reward of call ``t``, counted from 0.

    Sutton and Barto, Reinforcement Learning, 2nd edition, equation 3.8.
    """

    gamma: float

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must lie between 0 and 1, not {self.gamma}")


def discounted(gamma: float) -> Discounted:
    """Policy for ``EnvironmentSpec(reward=…)``: rewards count less the later they come."""
    return Discounted(gamma)


RewardPolicy: TypeAlias = (
    Literal["last", "sum", "max", "mean"] | Discounted | Callable[["Episode"], float | None]
)
"""How calls' rewards become an episode's. A callable gets the whole episode; None means: not scored."""

_NAMES = ("last", "sum", "max", "mean")


def check_policy(policy: object) -> None:
    """Raises ValueError for what is no policy, at construction rather than in the middle of a run."""
    if policy in _NAMES or isinstance(policy, Discounted) or callable(policy):
        return
    raise ValueError(
        f"reward must be one of {', '.join(_NAMES)}, discounted(gamma) or a function of the episode, "
        f"not {policy!r}"
    )


def reduce_rewards(policy: RewardPolicy, rewards: Sequence[float | None]) -> float | None:
    """The episode's reward by a policy that is no callable; None when no call was scored.

    ``rewards`` has one entry for each call in order, None for a call without a reward: it takes part in no
    sum or mean, but counts as a step of time for ``Discounted``.
    """
    scored = [reward for reward in rewards if reward is not None]
    if not scored:
        return None
    if isinstance(policy, Discounted):
        return math.fsum(policy.gamma**t * r for t, r in enumerate(rewards) if r is not None)
    match policy:
        case "last":
            return scored[-1]
        case "sum":
            return math.fsum(scored)
        case "max":
            return max(scored)
        case "mean":
            return math.fsum(scored) / len(scored)
    raise ValueError(f"no such policy: {policy!r}")
