"""Counters and histograms of sessions and calls, read by ``observe`` and the console.

It runs for every call, so it only finds a row and adds; readers compute the rest. Durations are counted in
fixed buckets, as in a Prometheus histogram; those of the last seconds also in a ring buffer of sketches with
logarithmic buckets (as DDSketch), whose quantiles have a bounded relative error.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import accumulate
from math import log2

__all__ = ["AGE_BOUNDS_S", "BOUNDS_S", "OTHER", "SCORE", "CallRow", "Durations", "Meter", "Timings"]

BOUNDS_S = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip
"""Upper bounds of the buckets for durations of calls."""
AGE_BOUNDS_S = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
"""Upper bounds of the buckets for ages of sessions."""
OTHER = "other"
"""Label of tools that are in no table: unknown names from clients, and tools of single tasks."""
SCORE = "score_group"

_WINDOW_S = 10
_PER_OCTAVE = 8  # steps of 9%
_STEPS = 30 * _PER_OCTAVE  # from a microsecond to a thousand seconds


class Durations:
    """A histogram of seconds; ``counts`` has one bucket more than ``bounds``, for larger values."""

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds


class Timings:
    """Histograms of the durations of an environment's calls, in total and by phase."""

    __slots__ = ("queue", "run", "stream", "total")

    def __init__(self) -> None:
        self.total = Durations()
        self.queue = Durations()
        self.run = Durations()
        self.stream = Durations()


class CallRow:
    """Calls of one tool: ``answers``, and ``faults`` by their class."""

    __slots__ = ("answers", "faults", "timings")

    def __init__(self, timings: Timings) -> None:
        self.timings = timings
        self.answers = 0
        self.faults: Counter[str] = Counter()


class _Second:
    """Counters of the calls computed within one second."""

    __slots__ = ("at", "calls", "faults", "steps")

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0
        self.faults = 0
        self.steps = [0] * (_STEPS + 1)


class Meter:
    """Counts and durations since the start of the server.

    ``tools_of`` gives the names of an environment's tools. Only those are counted by name, so that clients
    cannot add rows without limit. ``now`` is a clock in seconds.
    """

    def __init__(
        self,
        tools_of: Callable[[str], Collection[str]] = lambda environment: (),
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tools_of = tools_of
        self.opened: Counter[str] = Counter()
        self.ended: Counter[tuple[str, str]] = Counter()
        self.ages: dict[str, Durations] = {}
        self.timings: dict[str, Timings] = {}
        self._rows: dict[tuple[str, str], CallRow] = {}
        self._now = now
        self._began = now()
        self._seconds = [_Second(-1) for _ in range(_WINDOW_S + 1)]

    @property
    def calls(self) -> Mapping[tuple[str, str], CallRow]:
        """Rows by environment and tool."""
        return self._rows

    def session_opened(self, environment: str) -> None:
        """Count a session whose constructor has run."""
        self.opened[environment] += 1

    def session_ended(self, environment: str, reason: str, age_s: float) -> None:
        """Count a session that is over; ``reason`` is an EndReason, ``restart``, or the class of a fault."""
        self.ended[environment, reason] += 1
        ages = self.ages.get(environment)
        if ages is None:
            ages = self.ages[environment] = Durations(AGE_BOUNDS_S)
        ages.add(age_s)

    def call_ended(
        self,
        environment: str,
        tool: str,
        fault: str | None,
        total_s: float,
        queue_s: float | None,
        run_s: float | None,
        stream_s: float | None,
    ) -> None:
        """Count a computed call; durations in seconds, as in ``journal.schema``, None where not known.

        ``Durations.add`` is inlined for three of them, since this runs for every call.
        """
        row = self._rows.get((environment, tool)) or self._row(environment, tool)
        timings = row.timings
        part = timings.total
        part.counts[bisect_left(BOUNDS_S, total_s)] += 1
        part.sum_s += total_s
        if queue_s is not None:
            part = timings.queue
            part.counts[bisect_left(BOUNDS_S, queue_s)] += 1
            part.sum_s += queue_s
        if run_s is not None:
            part = timings.run
            part.counts[bisect_left(BOUNDS_S, run_s)] += 1
            part.sum_s += run_s
        if stream_s is not None:
            timings.stream.add(stream_s)
        at = int(self._now())
        second = self._seconds[at % (_WINDOW_S + 1)]
        if second.at != at:
            second = self._seconds[at % (_WINDOW_S + 1)] = _Second(at)
        second.calls += 1
        if fault is None:
            row.answers += 1
        else:
            row.faults[fault] += 1
            second.faults += 1
        microseconds = total_s * 1e6
        step = int(log2(microseconds) * _PER_OCTAVE) if microseconds > 1.0 else 0
        second.steps[step if step < _STEPS else _STEPS] += 1

    def _row(self, environment: str, tool: str) -> CallRow:
        """Add the row of a tool at its first call; tools that are in no table share one row."""
        if tool not in (OTHER, SCORE) and tool not in self.tools_of(environment):
            tool = OTHER
        row = self._rows.get((environment, tool))
        if row is None:
            timings = self.timings.get(environment)
            if timings is None:
                timings = self.timings[environment] = Timings()
            row = self._rows[environment, tool] = CallRow(timings)
        return row

    def recent(self) -> tuple[float, float, float | None, float | None, float | None]:
        """Calls and faults per second over the last ten seconds, and quantiles of durations in milliseconds.

        The quantiles (50%, 95%, 99%) are accurate within 9%; None without calls.
        """
        now = self._now()
        seconds = [second for second in self._seconds if now - _WINDOW_S <= second.at + 1 and second.at >= 0]
        calls = sum(second.calls for second in seconds)
        faults = sum(second.faults for second in seconds)
        span_s = min(max(now - self._began, 1.0), float(_WINDOW_S))
        if not calls:
            return 0.0, 0.0, None, None, None
        steps = [sum(counts) for counts in zip(*(second.steps for second in seconds), strict=True)]
        median, high, highest = (_quantile_ms(steps, calls * share) for share in (0.5, 0.95, 0.99))
        return calls / span_s, faults / span_s, median, high, highest


def _quantile_ms(steps: list[int], rank: float) -> float:
    step = next(step for step, seen in enumerate(accumulate(steps)) if seen >= rank)
    return float(2 ** ((step + 0.5) / _PER_OCTAVE)) / 1000
