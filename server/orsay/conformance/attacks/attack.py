"""An attack, and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from .verdicts import Broken, Lost, Weak

if TYPE_CHECKING:
    from .bench import Bench

__all__ = ["GROUPS", "Attack", "Broken", "Group", "Lost", "Result", "Run", "Status", "Weak", "attack"]

Group: TypeAlias = Literal[
    "reading", "grading", "confinement", "network", "secrets", "neighbours", "resources"
]
Status: TypeAlias = Literal["passed", "warning", "failed", "not tried"]
Run: TypeAlias = Callable[["Bench"], Awaitable[str]]

GROUPS: dict[Group, str] = {
    "reading": "Reading tests, solutions and graders",
    "grading": "Rewards that are not earned",
    "confinement": "Ways out of the sandbox",
    "network": "Ways over the network",
    "secrets": "Keys and secrets",
    "neighbours": "Sessions beside each other",
    "resources": "Exhausting the machine",
}
"""Titles of the groups, in the order in which they are played."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One thing that a model may try. ``tried``, ``matters`` and ``change`` are sentences of the report."""

    id: str
    group: Group
    tried: str
    matters: str
    change: str
    run: Run


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an attack: ``happened`` says what was seen, or why it was not tried."""

    attack: Attack
    status: Status
    happened: str
    duration_s: float


def attack(name: str, group: Group, *, tried: str, matters: str, change: str) -> Callable[[Run], Attack]:
    """Decorator for the function that plays it.

    The function returns what it saw when the environment held. It raises Broken, Weak, NotSupported or Lost.
    """

    def make(run: Run) -> Attack:
        return Attack(name, group, tried, matters, change, run)

    return make
