"""What a check is, and what comes out of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from .target import Target

__all__ = [
    "Check",
    "Failed",
    "Group",
    "NotSupported",
    "Outcome",
    "Run",
    "Status",
    "expect",
    "promise",
    "standard",
]

Group: TypeAlias = Literal["standard", "orsay"]
Status: TypeAlias = Literal["passed", "failed", "not supported"]
Run: TypeAlias = "Callable[[Target], Awaitable[None]]"


class Failed(AssertionError):
    """The server does something other than the sentence of the check says. The text says what."""


class NotSupported(Exception):
    """The check says nothing about this server, which lacks what the text says."""


def expect(condition: object, otherwise: str) -> None:
    """Raises Failed with ``otherwise`` unless ``condition`` holds."""
    if not condition:
        raise Failed(otherwise)


@dataclass(frozen=True, slots=True)
class Check:
    """One behaviour. ``entry`` is what it proves: its own id, or that of a promise with several checks."""

    id: str
    source: str
    sentence: str
    group: Group
    entry: str
    run: Run


@dataclass(frozen=True, slots=True)
class Outcome:
    """What ``check`` found; ``reason`` is empty when it passed."""

    check: Check
    status: Status
    reason: str
    duration_s: float


def standard(name: str, section: str, sentence: str) -> Callable[[Run], Check]:
    """A behaviour of the standard as servers speak it: a failure is a deviation that clients may notice."""

    def make(run: Run) -> Check:
        check_id = f"P-{section}-{name}"
        return Check(check_id, f"ORS wire notes §{section}", sentence, "standard", check_id, run)

    return make


def promise(entry: str, name: str, sentence: str) -> Callable[[Run], Check]:
    """A behaviour that Orsay adds; other servers are right without it."""

    def make(run: Run) -> Check:
        return Check(f"{entry}-{name}", f"Orsay promise {entry}", sentence, "orsay", entry, run)

    return make
