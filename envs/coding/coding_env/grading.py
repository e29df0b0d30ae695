"""Grading: solutions run on inputs in a sandbox of their own, and their outputs are judged here.

No expected output, no reference and no test is ever in a sandbox; the seed of the inputs is made when a
solution is graded.
"""

from __future__ import annotations

import binascii
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from orsay import Sandbox

from .languages import LANGUAGES
from .problem import Instance

__all__ = ["DRIVER", "LIMITS", "Job", "Verdict", "commands", "run_jobs"]

LIMITS: Mapping[str, float] = {
    "cpu_s": 2,
    "wall_s": 10,
    "total_s": 60,
    "build_s": 20,
    "memory_bytes": 512 << 20,
    "output_bytes": 16_384,
    "processes": 32,
    "slow": 3,
}
"""Of each input, but for ``total_s``, of all of them, and ``slow``: the number of inputs over the time
limit after which no other is tried."""

DRIVER = "/grader/driver.py"
_RUNNER = "/grader/runner.py"
_PLAN = "/grader/plan.json"
_KILLED = 128

_WHY = {
    "time": "over the time limit",
    "output": "too much output",
    "failed": "not started, or ended with an error",
    "build": "not built",
    "skipped": "not tried, for those before took too long",
    "wrong": "wrong output",
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A solution to run: where its source lies in the grader's sandbox, and its inputs."""

    instance: Instance
    source: str
    inputs: Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of each input."""

    ends: Sequence[str]
    """``right``, or why not."""

    @property
    def cases(self) -> int:
        return len(self.ends)

    @property
    def passed(self) -> int:
        return sum(end == "right" for end in self.ends)

    def text(self) -> str:
        """For the model: numbers and reasons, nothing of the inputs."""
        failures = Counter(end for end in self.ends if end != "right")
        reasons = ", ".join(f"{number} {_WHY[end]}" for end, number in failures.most_common())
        return f"{self.passed} of {self.cases} hidden inputs passed" + (f" ({reasons})." if reasons else ".")


def commands(instance: Instance, source: str, *, driver: str = DRIVER) -> tuple[list[str], list[str]]:
    """Words that build and run a solution on one input."""
    build, run = LANGUAGES[instance.language].commands(source)
    if instance.problem.form == "function":
        run = ["python3", "-I", "-B", driver, source, instance.function]
    return build, run


@cache
def source_of(module: str) -> str:
    """Source of a module of this package, which a sandbox gets as a file."""
    return files(__package__).joinpath(f"{module}.py").read_text()


async def run_jobs(
    box: Sandbox,
    jobs: Sequence[Job],
    *,
    artifacts: Sequence[str] = (),
    extra: Mapping[str, str] | None = None,
) -> list[Verdict]:
    """Verdicts of jobs that share one fresh sandbox, with ``artifacts`` of ``box`` and ``extra`` files.

    Raises SandboxError where the machinery fails, and RuntimeError where the image has no Python to run it.
    """
    plan = {
        "limits": LIMITS,
        "jobs": [
            dict(
                zip(("build", "run"), commands(job.instance, job.source), strict=True),
                source=job.source,
                inputs=[job.instance.stdin(value) for value in job.inputs],
            )
            for job in jobs
        ],
    }
    result = await box.grade(
        ["python3", "-I", "-B", _RUNNER, _PLAN],
        artifacts=artifacts,
        files={
            _RUNNER: source_of("runner"),
            DRIVER: source_of("driver"),
            _PLAN: json.dumps(plan),
            **(extra or {}),
        },
        timeout_s=len(jobs) * (LIMITS["total_s"] + LIMITS["build_s"] + 30),
        max_bytes=None,
    )
    if result.return_code >= _KILLED or result.timed_out:  # for memory: the solutions' own doing
        return [Verdict(ends=["failed"] * len(job.inputs)) for job in jobs]
    if not result.ok:
        raise RuntimeError(f"the grader ended with {result.return_code}: {result.output[-1000:].strip()}")
    report = json.loads(result.output)
    return [_judged(job, found) for job, found in zip(jobs, report, strict=True)]


def _judged(job: Job, found: Sequence[Sequence[Any]]) -> Verdict:
    ends = []
    for value, (end, status, output) in zip(job.inputs, found, strict=True):
        if end == "exit" and status == 0:
            right = job.instance.accepts(value, binascii.a2b_base64(output))
            ends.append("right" if right else "wrong")
        else:
            ends.append("failed" if end == "exit" else end)
    return Verdict(ends=ends)
