"""A check of one behaviour, and its outcome."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .target import Target

__all__ = [
    "Check",
    "Group",
    "Outcome",
    "Run",
    "Status",
    "promise",
    "standard",
]

Group: TypeAlias = Literal["standard", "orsay"]
Status: TypeAlias = Literal["passed", "failed", "not supported"]
Run: TypeAlias = Callable[[Target], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """One behaviour. ``entry`` is its id in the ledger: its own, or that of a promise with several checks."""

    id: str
    source: str
    sentence: str
    group: Group
    entry: str
    run: Run


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one check; ``reason`` is empty when it passed."""

    check: Check
    status: Status
    reason: str
    duration_s: float


def standard(name: str, section: str, sentence: str) -> Callable[[Run], Check]:
    """Decorator for a behaviour of the standard: a failure is a deviation that clients may notice."""

    def make(run: Run) -> Check:
        check_id = f"P-{section}-{name}"
        return Check(check_id, f"ORS wire notes §{section}", sentence, "standard", check_id, run)

    return make


def promise(entry: str, name: str, sentence: str) -> Callable[[Run], Check]:
    """Decorator for a behaviour that Orsay adds; other servers conform without it."""

    def make(run: Run) -> Check:
        return Check(f"{entry}-{name}", f"Orsay promise {entry}", sentence, "orsay", entry, run)

    return make
