"""From the rewards of an episode's calls to the one number that is its score.

The names mean what they mean to ``orsay_trl.EnvironmentSpec(reward=…)``, so that a model is judged by what it
was trained for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

__all__ = ["Discounted", "RewardPolicy", "Scored", "check_reward", "discounted", "parse_reward", "reward_of"]

_NAMES = ("last", "sum", "max", "mean")


class Scored(Protocol):
    """An episode, as a reward policy sees it: here and in training alike."""

    @property
    def rewards(self) -> list[float | None]: ...
    @property
    def finished(self) -> bool: ...
    @property
    def last_output(self) -> str: ...
    @property
    def metadata(self) -> list[dict[str, Any] | None]: ...


@dataclass(frozen=True, slots=True)
class Discounted:
    """The return of an episode: the sum of ``gamma ** t`` times the reward of call ``t``, counted from 0.

    Sutton and Barto, Reinforcement Learning, 2nd edition, equation 3.8.
    """

    gamma: float

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must lie between 0 and 1, not {self.gamma}")

    def __call__(self, episode: Scored) -> float | None:
        rewards = episode.rewards
        if all(reward is None for reward in rewards):
            return None
        return math.fsum(self.gamma**t * reward for t, reward in enumerate(rewards) if reward is not None)

    def __str__(self) -> str:
        return f"discounted:{self.gamma:g}"


def discounted(gamma: float) -> Discounted:
    """Rewards count less the later they come; also for ``EnvironmentSpec(reward=…)``."""
    return Discounted(gamma)


RewardPolicy: TypeAlias = Literal["last", "sum", "max", "mean"] | Callable[[Any], float | None]
"""A callable gets the episode (``Scored``); None means: not scored."""


def check_reward(policy: object) -> None:
    """Raises ValueError for what is no policy."""
    if policy not in _NAMES and not callable(policy):
        raise ValueError(
            f"reward must be one of {', '.join(_NAMES)}, discounted(gamma) or a function of the episode, "
            f"not {policy!r}"
        )


def parse_reward(text: str) -> RewardPolicy:
    """The policy that a command line names: ``last``, ``sum``, ``max``, ``mean``, ``discounted:0.99``."""
    name, _, gamma = text.partition(":")
    if name == "discounted":
        try:
            return Discounted(float(gamma))
        except ValueError:
            raise ValueError(f"{text!r}: say discounted:GAMMA with a number from 0 to 1") from None
    match text:
        case "last" | "sum" | "max" | "mean":
            return text
    raise ValueError(f"no reward policy {text!r}; there are {', '.join(_NAMES)}, discounted:GAMMA")


def reward_of(policy: RewardPolicy, episode: Scored) -> float | None:
    """The episode's reward; None when no call was scored."""
    if callable(policy):
        found = policy(episode)
        return None if found is None else float(found)
    return _reduce(policy, [reward for reward in episode.rewards if reward is not None])


def _reduce(name: str, scored: Sequence[float]) -> float | None:
    if not scored:
        return None
    match name:
        case "last":
            return scored[-1]
        case "sum":
            return math.fsum(scored)
        case "max":
            return max(scored)
    return math.fsum(scored) / len(scored)
