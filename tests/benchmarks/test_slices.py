"""Loads that take turns: one runs at a time, and each is paused while others run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import pytest
from orsay_bench.loops import Result
from orsay_bench.slices import SLICE_S, run_in_slices

pytestmark = pytest.mark.process

_RUNS = """
import json, time
end, last, pauses = time.monotonic() + 2, time.monotonic(), []
while last < end:
    time.sleep(0.005)
    now = time.monotonic()
    if now - last > 0.15:
        pauses.append((last, now))
    last = now
print(json.dumps({"pauses": pauses, "n": 5.0, "per_s": 1.0, "p50_ms": 1.0, **FIGURES}))
"""


def generator(source: str, **figures: float) -> Callable[[], subprocess.Popen[str]]:
    command = [sys.executable, "-c", source.replace("FIGURES", str(figures))]
    return partial(subprocess.Popen, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def found(result: Result | RuntimeError) -> Result:
    assert not isinstance(result, RuntimeError), result
    return result


def test_each_waits_while_the_other_runs() -> None:
    starts = [generator(_RUNS, server_cpu=0.4, generator_cpu=0.1, other_cpu=0.75) for _ in range(2)]
    one, other = map(found, run_in_slices(starts, limit_s=60))
    alternating = [
        end - begin > SLICE_S / 2
        and not any(since < (begin + end) / 2 < until for since, until in other["pauses"])
        for begin, end in one["pauses"]
    ]
    assert sum(alternating) >= 2  # a busy machine adds pauses of its own


def test_what_the_others_take_is_no_other_work_and_pauses_are_no_latency() -> None:
    starts = [
        generator(
            "import json; print(json.dumps(FIGURES))", server_cpu=0.3, generator_cpu=0.2, other_cpu=0.75
        ),
        generator(
            "import json; print(json.dumps(FIGURES))", server_cpu=0.2, generator_cpu=0.1, other_cpu=0.2
        ),
    ]
    one, other = map(found, run_in_slices(starts, limit_s=60))
    assert (one["other_cpu"], other["other_cpu"]) == (0.45, 0.0)
    (result,) = map(found, run_in_slices([generator(_RUNS, server_cpu=0, generator_cpu=0, other_cpu=0)], 60))
    assert result["n"] == 5.0
    assert not {"per_s", "p50_ms"} & result.keys()


def test_one_that_fails_or_does_not_end_is_reported_and_keeps_no_other_from_its_result() -> None:
    starts = [
        generator("import sys; sys.exit('no server')"),
        generator("import time; time.sleep(600)"),
        generator("import json; print(json.dumps(FIGURES))", server_cpu=0, generator_cpu=0, other_cpu=0),
    ]
    began = time.monotonic()
    failed, endless, well = run_in_slices(starts, limit_s=3)
    assert time.monotonic() - began < 60
    assert "no server" in str(failed)
    assert "ended with -9" in str(endless)
    assert found(well)["other_cpu"] == 0.0
