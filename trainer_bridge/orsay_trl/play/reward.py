"""Reward policies: those of evaluations, see ``orsay_eval.reward``, with the limit of trainers."""

from __future__ import annotations

from orsay_eval.reward import Discounted, RewardPolicy, discounted, reduce_rewards, reward_of
from orsay_eval.reward import check_reward as check_policy

__all__ = [
    "LARGEST",
    "Discounted",
    "RewardPolicy",
    "check_policy",
    "discounted",
    "reduce_rewards",
    "reward_of",
]

LARGEST = 1e18
"""Trainers compute the spread of a group in 32 bits, where the squares of larger rewards are infinite, and
then all advantages of the group are worthless."""
