"""Counting, without a server."""

from __future__ import annotations

import pytest
from orsay.sessions.meter import Meter


class Clock:
    """Time as a test wants it."""

    def __init__(self) -> None:
        self.now = 1000.25

    def __call__(self) -> float:
        return self.now


def tools_of(environment: str) -> set[str]:
    return {"add", "look"} if environment == "E" else set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(clock: Clock) -> Meter:
    return Meter(tools_of, now=clock)


def end(meter: Meter, tool: str = "add", fault: str | None = None, total_s: float = 0.01) -> None:
    meter.call_ended("E", tool, fault, total_s, None, None, None)


def test_before_the_first_call_there_is_nothing_recent(meter: Meter) -> None:
    assert meter.recent() == (0.0, 0.0, None, None, None)


def test_recent_calls_are_those_of_ten_seconds(meter: Meter, clock: Clock) -> None:
    clock.now += 100
    for _ in range(50):
        end(meter)
    for _ in range(10):
        end(meter, fault="tool_error")
    assert meter.recent()[:2] == (6.0, 1.0)
    clock.now += 9
    assert meter.recent()[:2] == (6.0, 1.0)
    clock.now += 3
    assert meter.recent() == (0.0, 0.0, None, None, None)


def test_a_young_server_shows_its_rate_since_its_start(meter: Meter, clock: Clock) -> None:
    clock.now += 2
    for _ in range(8):
        end(meter)
    assert meter.recent()[0] == 4.0


@pytest.mark.parametrize("seconds", [2e-6, 0.0004, 0.0031, 0.25, 17.0, 900.0])
def test_quantiles_are_right_within_a_tenth(meter: Meter, seconds: float) -> None:
    for _ in range(100):
        end(meter, total_s=seconds)
    for quantile in meter.recent()[2:]:
        assert quantile == pytest.approx(seconds * 1000, rel=0.1)


def test_quantiles_differ_as_the_calls_do(meter: Meter) -> None:
    for number in range(1, 101):
        end(meter, total_s=number / 1000)
    for quantile, wanted in zip(meter.recent()[2:], (50, 95, 99), strict=True):
        assert quantile == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize("seconds", [0.0, -0.001, 1e9])
def test_a_clock_that_jumps_breaks_nothing(meter: Meter, seconds: float) -> None:
    end(meter, total_s=seconds)
    assert meter.recent()[2] is not None


def test_names_that_are_no_tools_share_a_row(meter: Meter) -> None:
    for number in range(100):
        end(meter, tool=f"made-up-{number}")
    end(meter, tool="look")
    end(meter, tool="score_group", fault="score_error")
    assert set(meter.calls) == {("E", "other"), ("E", "look"), ("E", "score_group")}
    assert meter.calls["E", "other"].answers == 100
    assert meter.calls["E", "score_group"].faults == {"score_error": 1}


def test_durations_fall_into_their_buckets(meter: Meter) -> None:
    meter.call_ended("E", "add", None, 0.02, 0.0002, 0.015, None)
    timings = meter.timings["E"]
    assert timings.total.counts[timings.total.bounds.index(0.025)] == 1
    assert timings.run.counts[timings.run.bounds.index(0.025)] == 1
    assert timings.queue.counts[0] == 1
    assert sum(timings.stream.counts) == 0
    assert timings.total.sum_s == pytest.approx(0.02)


@pytest.mark.parametrize("reason", ["deleted", "idle", "console", "worker_lost"])
def test_ends_of_sessions_are_counted_by_their_reason(meter: Meter, reason: str) -> None:
    meter.session_ended("E", reason, 3.0)
    assert meter.ended == {("E", reason): 1}
