"""Reward policies: one number, the score, from the rewards of an episode's calls, here and in training.

``orsay_trl.EnvironmentSpec(reward=…)`` takes the same policies, so that evaluation measures the training
objective. If the result is not a finite number, the episode is lost to ``bad_reward``.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from orsay_client.errors import BadReward

from .exact import mean, total

__all__ = [
    "Discounted",
    "RewardPolicy",
    "Scored",
    "check_reward",
    "discounted",
    "parse_reward",
    "reduce_rewards",
    "reward_of",
]

_log = logging.getLogger("orsay_eval")
_NAMES = ("last", "sum", "max", "mean")


class Scored(Protocol):
    """Interface of an episode for reward policies, in evaluation and training."""

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
        return self.of(episode.rewards)

    def of(self, rewards: Sequence[float | None]) -> float | None:
        """The return, or None if no call was scored; calls without a reward count as time steps."""
        scored = [self.gamma**t * reward for t, reward in enumerate(rewards) if reward is not None]
        return total(scored) if scored else None

    def __str__(self) -> str:
        return f"discounted:{self.gamma:g}"


def discounted(gamma: float) -> Discounted:
    """Reward policy: the discounted sum of the calls' rewards."""
    return Discounted(gamma)


RewardPolicy: TypeAlias = Literal["last", "sum", "max", "mean"] | Callable[[Any], float | None]
"""Rule by which calls' rewards become an episode's. A callable gets the episode (``Scored``, in training
the whole ``orsay_trl.Episode``); None means: not scored."""


def check_reward(policy: object) -> None:
    """Raises ValueError for an invalid policy, at construction rather than during a run."""
    if not callable(policy) and policy not in _NAMES:
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
            raise ValueError(f"{text!r}: use discounted:GAMMA with a number from 0 to 1") from None
    match text:
        case "last" | "sum" | "max" | "mean":
            return text
    raise ValueError(f"no reward policy {text!r}; there are {', '.join(_NAMES)}, discounted:GAMMA")


def reward_of(policy: RewardPolicy, episode: Scored, *, largest: float = sys.float_info.max) -> float | None:
    """The episode's reward; None when it was not scored.

    Raises BadReward, a fault, where the policy raises, or what it makes of the episode is no number, not
    finite, or further from 0 than ``largest``.
    """
    named = policy if isinstance(policy, str) else getattr(policy, "__name__", str(policy))
    try:
        found: Any = policy(episode) if callable(policy) else reduce_rewards(policy, episode.rewards)
        if found is None:
            return None
        if isinstance(found, str | bytes):
            raise TypeError(f"it returned {found!r:.100}")
        reward = float(found)
    except Exception as exc:  # a user's function: it costs the episode, never the run
        _log.warning("the reward policy %s failed", named, exc_info=True)
        raise BadReward(f"the reward policy {named} failed: {type(exc).__name__}: {exc}") from exc
    if not math.isfinite(reward) or abs(reward) > largest:
        raise BadReward(
            f"the reward policy {named} gave {reward:g}: a reward is a finite number"
            + ("" if largest == sys.float_info.max else f" from {-largest:g} to {largest:g}")
        )
    return reward


def reduce_rewards(policy: RewardPolicy, rewards: Sequence[float | None]) -> float | None:
    """The reward by a policy that needs no more of an episode than its calls' rewards, None where a call had
    none; None when no call was scored.

    Raises OverflowError where a sum is beyond the range of a float.
    """
    if isinstance(policy, Discounted):
        return policy.of(rewards)
    scored = [reward for reward in rewards if reward is not None]
    if not scored:
        return None
    match policy:
        case "last":
            return scored[-1]
        case "sum":
            return total(scored)
        case "max":
            return max(scored)
        case "mean":
            return mean(scored)
    raise ValueError(f"no such policy: {policy!r}")
