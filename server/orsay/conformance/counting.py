"""Search for a tool whose answers count its runs in the session."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from .failures import Failed, NotSupported, expect
from .reply import Reply

__all__ = ["Counter", "find_counter"]

Calls: TypeAlias = Callable[[str, dict[str, Any]], AsyncGenerator[Reply, None]]
"""Calls a tool repeatedly in a fresh session, until an answer is no output."""

Witness: TypeAlias = Callable[[], Awaitable[str | None]]
"""Evidence, from another tool, that each call runs twice; None where there is none."""

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_CALLS, _CALLS_AGAIN = 6, 3
_FEWEST = 4  # calls that a check makes in one session


@dataclass(frozen=True, slots=True)
class Counter:
    """A call whose answer has a number at ``position`` that starts at ``first`` and moves by ``step``."""

    tool: str
    value: dict[str, Any]
    position: int
    first: float
    step: float

    def runs(self, reply: Reply) -> int:
        """Number of runs of the tool in its session at this answer. Raises Failed for a fraction."""
        found = _numbers(reply.output)
        expect(self.position < len(found), f"{self.tool} no longer counts: {reply.output!r:.200}")
        runs = (found[self.position] - self.first) / self.step + 1
        expect(runs == int(runs), f"{self.tool} counts to {found[self.position]} from {self.first}")
        return int(runs)

    def alike(self, one: Reply, other: Reply) -> bool:
        """True if both answers contain the same count of numbers, so that positions correspond."""
        return len(_numbers(one.output)) == len(_numbers(other.output))

    def expect_runs(self, reply: Reply, wanted: int, when: str) -> None:
        """Raises Failed unless the tool ran exactly that often; ``when`` is for the message."""
        runs = self.runs(reply)
        expect(runs == wanted, f"{when}, {self.tool} has run {runs} times in its session, not {wanted}")


async def find_counter(
    tools: Iterable[tuple[str, dict[str, Any]]],
    calls: Calls,
    *,
    declared: bool,
    step: int = 1,
    witness: Witness | None = None,
) -> Counter | None:
    """The first tool that counts by one. A declared tool must count by ``step``.

    Raises Failed if the declared tool does not, if some calls of a counting tool count two, or if all do and
    a ``witness`` confirms it. Raises NotSupported for a tool that counts by two without a witness: a game of
    two players may count both moves.
    """
    uneven = by_two = None
    sizes = {step, 2 * step} if declared else {1, 2}
    for name, value in tools:
        rows = await _rows(calls, name, value, _CALLS, None if declared else sizes)
        for position, first, steps in _moving(rows, sizes, _FEWEST):
            again = await _rows(calls, name, value, _CALLS_AGAIN)
            if len(again) < _CALLS_AGAIN or {len(row) for row in again} != {len(rows[0])}:
                continue
            fresh = [row[position] for row in again]
            steps += [after - before for before, after in pairwise(fresh)]
            seen = {abs(each) for each in steps}
            if seen == {step} and len(set(steps)) == 1 and fresh[0] == first:
                return Counter(name, value, position, first, steps[0])
            if seen <= {1, 2} and 2 in seen and abs(fresh[0] - first) <= 2:
                shown = f"{name} counts " + ", ".join(f"{row[position]:g}" for row in rows)
                if len(set(steps)) == 1 and fresh[0] == first:
                    by_two = by_two or shown
                else:
                    uneven = uneven or shown
        if declared:
            if by_two or uneven:
                raise Failed(f"{by_two or uneven}: calls run twice")
            shown = "; ".join(" ".join(f"{number:g}" for number in row) or "no number" for row in rows)
            raise Failed(
                f"{name} should count its calls by {step}, from the same number in each session; "
                f"the numbers of its answers are: {shown or 'none, since it refuses its input'}"
            )
    if uneven is not None:
        raise Failed(
            f"{uneven}: some calls run twice, or the tool itself counts unevenly: name one that counts its "
            "calls by one with --counting-tool"
        )
    if by_two is not None:
        shown_twice = await witness() if witness is not None else None
        if shown_twice is not None:
            raise Failed(f"{by_two}, and {shown_twice}: calls run twice")
        raise NotSupported(
            f"{by_two}: the tool itself counts by two, or calls run twice; use --counting-tool NAME:2 where "
            "the tool does, or name one that counts its calls by one"
        )
    return None


async def _rows(
    calls: Calls, name: str, value: dict[str, Any], count: int, sizes: set[int] | None = None
) -> list[list[float]]:
    """Numbers of ``count`` answers; fewer if the episode ends, or if no number moves by ``sizes``."""
    rows: list[list[float]] = []
    async with aclosing(calls(name, value)) as replies:
        async for reply in replies:
            output = reply.output
            rows.append(_numbers(output))
            stands = sizes is not None and len(rows) > 1 and not list(_moving(rows, sizes, 2))
            if len(rows) == count or stands or output.get("finished"):
                break
    return rows


def _moving(
    rows: Sequence[Sequence[float]], sizes: set[int], fewest: int
) -> Iterator[tuple[int, float, list[float]]]:
    """Positions where the number moves monotonically by these sizes, its first value, and its steps."""
    if len(rows) < fewest or len({len(row) for row in rows}) != 1:
        return
    for position, column in enumerate(zip(*rows, strict=True)):
        steps = [after - before for before, after in pairwise(column)]
        one_way = all(each > 0 for each in steps) or all(each < 0 for each in steps)
        if one_way and {abs(each) for each in steps} <= sizes:
            yield position, column[0], steps


def _numbers(output: Mapping[str, Any]) -> list[float]:
    texts = [str(block.get("text", "")) for block in output.get("blocks", [])]
    found = [float(digits) for text in texts for digits in _NUMBER.findall(text)]
    return [*found, *_leaves(output.get("metadata")), *_leaves(output.get("reward"))]


def _leaves(value: Any) -> Iterator[float]:
    if isinstance(value, Mapping):
        for name in sorted(value):
            yield from _leaves(value[name])
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)
