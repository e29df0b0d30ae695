"""The order in which a recorded session is to be made again, where one is known that leads to the same state.

What followed one upon the other is made again so. What ran at the same time may have changed the state of the
session in any order, whatever its answers say; unless the session let none of the two begin before the other
had ended, or one of them never ran.
"""

from __future__ import annotations

from typing import TypeAlias

from pydantic_core import from_json

from ..journal.read.open_sessions import PastAsk, PastCall, PastContent
from ..runtimes.base import EnvironmentInfo

__all__ = ["Disorder", "Step", "steps_of"]

Step: TypeAlias = PastAsk | PastCall

_REFUSED = frozenset({"not_found", "name_collision", "input_validation"})
"""Reasons of results that tell that nothing ran; ``episode_finished`` may stand for a call that did (D4)."""


class Disorder(Exception):
    """No order is known that leads to the state of the session; the text says why."""


def steps_of(content: PastContent, info: EnvironmentInfo, *, own_toolset: bool) -> list[Step]:
    """All that ended in a session, in an order that leads to its state. Raises Disorder.

    ``own_toolset``: the session has a toolset of its own, whose tools nobody here knows.
    """
    ended = _ended(content)
    steps = [*ended, *content.begun]
    if all(_after(step) >= min(number, len(ended)) for number, step in enumerate(steps)):
        return ended  # one after the other
    gate = _Gate(info, own_toolset=own_toolset)
    latest: dict[str | None, tuple[int, Step]] = {}  # of those that are alike for the gate
    for number, step in enumerate(steps, 1):
        if not _ran(step):
            continue
        for at, other in latest.values():
            if at > _after(step):  # it ended after this one had begun
                gate.check(step, other)
        if number <= len(ended):
            latest[gate.kind_of(step)] = number, step
    return ended


def _ended(content: PastContent) -> list[Step]:
    """Answers and results in their order. Raises Disorder when some are not there."""
    total = len(content.done) + len(content.asks)
    asks = {ask.number: ask for ask in content.asks}
    if any(number > total for number in asks):
        raise Disorder("the journal does not have all of it")
    calls = iter(content.done)
    ended = [asks.get(number) or next(calls) for number in range(1, total + 1)]
    if any(_after(step) >= number for number, step in enumerate(ended, 1)):
        raise Disorder("the journal does not have all of it")
    return ended


def _after(step: Step) -> int:
    if step.after is None:
        raise Disorder("an older version of Orsay recorded it, without the order in which its calls began")
    if step.after < 0:
        raise Disorder(f"{_name(step)} was asked for while its setup ran")
    return step.after


class _Gate:
    """What is known of the gate of a session (``gate``): which calls it never let run at the same time."""

    def __init__(self, info: EnvironmentInfo, *, own_toolset: bool) -> None:
        known = info.in_order and not own_toolset
        self._serial = frozenset(info.serial_tools if known else ())
        self._exclusive = frozenset(info.exclusive_tools if known else ())

    def check(self, step: Step, other: Step) -> None:
        """For two of which neither ended before the other began. Raises Disorder."""
        if not self._parts(step, other):
            raise Disorder(
                f"{_name(other)} and {_name(step)} ran at the same time, "
                "and nobody knows in which order they changed its state"
            )

    @staticmethod
    def kind_of(step: Step) -> str | None:
        """Steps of one kind are alike for ``check``."""
        return step.name if isinstance(step, PastCall) and step.kind == "call" else None

    def _parts(self, one: Step, other: Step) -> bool:
        """One of them began when the other had ended; in which order, their results tell."""
        if isinstance(one, PastAsk) or isinstance(other, PastAsk) or {one.kind, other.kind} != {"call"}:
            return False
        if one.name in self._exclusive or other.name in self._exclusive:
            return True
        return one.name == other.name and one.name in self._serial


def _ran(step: Step) -> bool:
    """False for a call that was refused before anything of the environment ran."""
    if isinstance(step, PastAsk) or step.kind != "call" or step.discarded or not step.result:
        return True
    result = from_json(step.result)
    refused = isinstance(result, dict) and result.get("ok") is False
    return not (refused and result.get("reason") in _REFUSED)


def _name(step: Step) -> str:
    if isinstance(step, PastAsk):
        return f"its {step.kind}"
    if step.number is None:
        return f"its unfinished call of {step.name!r}"
    return f"its call {step.number} of {step.name!r}"
