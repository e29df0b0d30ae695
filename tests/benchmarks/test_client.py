import argparse

import pytest
from orsay_bench.client import counts, median_cost, parser, table

RUNS = [
    {"kind": "orsay", "sessions": 16, "cpu_us_per_call": 300.0},
    {"kind": "orsay", "sessions": 16, "cpu_us_per_call": 400.0},
    {"kind": "orsay", "sessions": 16, "failed": "no result in time"},
    {"kind": "aiohttp", "sessions": 16, "cpu_us_per_call": 100.0},
]


def test_the_cost_is_the_median_of_the_runs_that_succeeded() -> None:
    assert median_cost(RUNS, "orsay", 16) == 350
    assert median_cost(RUNS, "orsay", 256) is None


def test_costs_are_shown_as_multiples_of_the_floor() -> None:
    assert table(RUNS, ["orsay", "aiohttp"], [16, 256]) == [
        ["client: CPU us per call", "16 sessions", "256 sessions"],
        ["orsay", "350 (3.5x)", ""],
        ["aiohttp", "100 (1x)", ""],
    ]


def test_session_counts_are_positive_numbers() -> None:
    assert counts("16,256") == (16, 256)
    for wrong in ("", "0", "a,2"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected numbers"):
            counts(wrong)


def test_three_clients_are_compared_by_default() -> None:
    assert parser().parse_args([]).clients == ("orsay", "openreward", "aiohttp")
