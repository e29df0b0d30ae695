"""Time slicing of several loads: one runs at a time, in turn.

The speed of a shared machine changes within seconds; loads that take turns several times a second are
compared under the same conditions.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence

from .gateway_loads import result_of
from .loops import Result

__all__ = ["SLICE_S", "run_in_slices"]

SLICE_S = 0.25
_OF_THE_CLOCK = ("per_s", "p50_ms", "p90_ms", "p99_ms", "max_ms")  # which has counted the pauses too


def run_in_slices(
    starts: Sequence[Callable[[], subprocess.Popen[str]]], limit_s: float
) -> list[Result | RuntimeError]:
    """Result of each generator, without times of the clock; or the error why there is none.

    Their seconds are those of the clock: each needs as many times more of them as there are generators.
    """
    with contextlib.ExitStack() as stack:
        generators = []
        for start in starts:
            generators.append(stack.enter_context(start()))
            stack.callback(generators[-1].kill)
            generators[-1].send_signal(signal.SIGSTOP)
        _take_turns(generators, limit_s)
        found = [_found(each) for each in generators]
    taken = sum(_cpu(each) for each in found)
    return [each if isinstance(each, RuntimeError) else _alone(each, taken) for each in found]


def _take_turns(generators: Sequence[subprocess.Popen[str]], limit_s: float) -> None:
    until = time.monotonic() + limit_s
    waiting = deque(generators)
    while waiting:
        generator = waiting.popleft()
        if time.monotonic() > until:
            generator.kill()
            continue
        generator.send_signal(signal.SIGCONT)
        try:
            generator.wait(SLICE_S)
        except subprocess.TimeoutExpired:
            generator.send_signal(signal.SIGSTOP)
            waiting.append(generator)


def _found(generator: subprocess.Popen[str]) -> Result | RuntimeError:
    try:
        return result_of(generator)
    except RuntimeError as error:
        return error


def _cpu(found: Result | RuntimeError) -> float:
    return 0.0 if isinstance(found, RuntimeError) else float(found["server_cpu"] + found["generator_cpu"])


def _alone(result: Result, taken: float) -> Result:
    """Without what the others of the slices took of the machine."""
    others = max(0.0, float(result["other_cpu"]) - (taken - _cpu(result)))
    kept = {name: value for name, value in result.items() if name not in _OF_THE_CLOCK}
    return {**kept, "other_cpu": round(others, 3)}
