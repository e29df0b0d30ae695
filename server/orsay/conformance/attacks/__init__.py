"""Attacks on an environment with sandboxes, played through the tools that it gives a model."""

from .attack import Attack, Broken, Result, Weak
from .bench import Bench, Options
from .report import to_json, to_junit
from .suite import ATTACKS, attacks_named, run_attacks

__all__ = [
    "ATTACKS",
    "Attack",
    "Bench",
    "Broken",
    "Options",
    "Result",
    "Weak",
    "attacks_named",
    "run_attacks",
    "to_json",
    "to_junit",
]
