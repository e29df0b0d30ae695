"""Order of replay of a recorded session that leads to the same state, where one is known.

This is conflict serializability, decided by logical clocks: each step has its position among all ended steps,
and the number of steps that had ended when it began. Steps that did not overlap are replayed in their order.
Two that overlapped may have changed the state in any order, whatever their answers, unless the tool lock of
the session ran one after the other, or one of them never ran.
"""

from __future__ import annotations

from typing import TypeAlias

from pydantic_core import from_json

from ..journal.read.open_sessions import PastAsk, PastCall, PastContent
from ..runtimes.base import EnvironmentInfo

__all__ = ["Disorder", "Step", "steps_of"]

Step: TypeAlias = PastAsk | PastCall

_REFUSED = frozenset({"not_found", "name_collision", "input_validation"})
"""Reasons of results of calls that did not run; ``episode_finished`` may stand for one that did (D4)."""


class Disorder(Exception):
    """No known order of replay leads to the state of the session; the message gives the reason."""


def steps_of(content: PastContent, info: EnvironmentInfo, *, own_toolset: bool) -> list[Step]:
    """The steps that ended in a session, in an order that leads to its state. Raises Disorder.

    ``own_toolset``: the session has a toolset of its own, whose tools are not in ``info``.
    """
    ended = _ended(content)
    steps = [*ended, *content.begun]
    if all(_after(step) >= min(number, len(ended)) for number, step in enumerate(steps)):
        return ended  # one after the other
    lock = _ToolLock(info, own_toolset=own_toolset)
    latest: dict[str | None, tuple[int, Step]] = {}  # of those that are alike for the lock
    for number, step in enumerate(steps, 1):
        if not _ran(step):
            continue
        for at, other in latest.values():
            if at > _after(step):  # it ended after this one had begun
                lock.check(step, other)
        if number <= len(ended):
            latest[lock.kind_of(step)] = number, step
    return ended


def _ended(content: PastContent) -> list[Step]:
    """Answers and results in their order. Raises Disorder if some are missing."""
    total = len(content.done) + len(content.asks)
    asks = {ask.number: ask for ask in content.asks}
    if any(number > total for number in asks):
        raise Disorder("the journal lacks some of its rows")
    calls = iter(content.done)
    ended = [asks.get(number) or next(calls) for number in range(1, total + 1)]
    if any(_after(step) >= number for number, step in enumerate(ended, 1)):
        raise Disorder("the journal lacks some of its rows")
    return ended


def _after(step: Step) -> int:
    if step.after is None:
        raise Disorder("an older version of Orsay recorded it, without the order in which its calls began")
    if step.after < 0:
        raise Disorder(f"{_name(step)} was asked for while its setup ran")
    return step.after


class _ToolLock:
    """Rules of a session's tool lock (``runtimes.execution.tool_lock``): which calls never overlapped."""

    def __init__(self, info: EnvironmentInfo, *, own_toolset: bool) -> None:
        known = info.in_order and not own_toolset
        self._serial = frozenset(info.serial_tools if known else ())
        self._exclusive = frozenset(info.exclusive_tools if known else ())

    def check(self, step: Step, other: Step) -> None:
        """Check two steps of which neither ended before the other began. Raises Disorder."""
        if not self._separates(step, other):
            raise Disorder(
                f"{_name(other)} and {_name(step)} ran at the same time, "
                "and the order in which they changed its state is unknown"
            )

    @staticmethod
    def kind_of(step: Step) -> str | None:
        """Steps of one kind are alike for ``check``."""
        return step.name if isinstance(step, PastCall) and step.kind == "call" else None

    def _separates(self, one: Step, other: Step) -> bool:
        """True if one of them ran after the other had ended, in the order of their results."""
        if isinstance(one, PastAsk) or isinstance(other, PastAsk) or {one.kind, other.kind} != {"call"}:
            return False
        if one.name in self._exclusive or other.name in self._exclusive:
            return True
        return one.name == other.name and one.name in self._serial


def _ran(step: Step) -> bool:
    """False for a call that was refused before anything of the environment ran."""
    if isinstance(step, PastAsk):
        return True
    if step.refused:
        return False
    if step.kind != "call" or step.discarded or not step.result:
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
