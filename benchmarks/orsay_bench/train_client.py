"""CPU time of a call in the trainer's process: through our spec, or through TRL's for OpenReward.

python -m orsay_bench.train_client orsay-spec --url http://127.0.0.1:8080 --sessions 96 --seconds 5

Calls a tool that answers at once, each spec in the way that its trainer does: ours all episodes at the same
time, TRL's one call after another. Threads of the spec count too. Prints one JSON object. Needs trl and
openreward for `trl-spec`, datasets for both.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from orsay_trl import EnvironmentSpec
from orsay_trl.play.episode import Episode

ENV = "echoenvironment"
INPUT = {"text": "hello"}
OUTPUT = "hello"
TASKS = 8


def orsay_spec(url: str, sessions: int) -> Callable[[float], tuple[int, int]]:
    """Plays for some seconds; returns how many calls were made, and how many of them went wrong."""
    spec = EnvironmentSpec(url, num_tasks=TASKS, env_name=ENV)
    rows = [dict(row) for row in spec.train_dataset]
    episodes = spec.prepare(rows[number % TASKS] for number in range(sessions))

    async def one(episode: Episode, stop_at: float) -> tuple[int, int]:
        made = wrong = 0
        while time.perf_counter() < stop_at:
            reply = await episode.call("echo", INPUT)
            made, wrong = made + 1, wrong + (reply.content != OUTPUT)
        return made, wrong

    async def everyone(seconds: float) -> tuple[int, int]:
        stop_at = time.perf_counter() + seconds
        found = await asyncio.gather(*(one(episode, stop_at) for episode in episodes))
        return sum(made for made, _ in found), sum(wrong for _, wrong in found)

    return lambda seconds: spec.run(everyone(seconds))


def trl_spec(url: str, sessions: int) -> Callable[[float], tuple[int, int]]:
    """The same for TRL's spec."""
    from trl.experimental.openreward import OpenRewardSpec

    os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = url
    os.environ.setdefault("OPENREWARD_API_KEY", "none")
    spec = OpenRewardSpec(url, num_tasks=TASKS, env_name=ENV)
    factory: Callable[[], Any] = spec.environment_factory
    environments = [factory() for _ in range(sessions)]
    for number, environment in enumerate(environments):
        environment.reset(task_index=number % TASKS)

    def everyone(seconds: float) -> tuple[int, int]:
        stop_at = time.perf_counter() + seconds
        made = wrong = 0
        while time.perf_counter() < stop_at:
            for environment in environments:
                made, wrong = made + 1, wrong + (environment.echo(**INPUT) != OUTPUT)
        return made, wrong

    return everyone


KINDS = {"orsay-spec": orsay_spec, "trl-spec": trl_spec}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m orsay_bench.train_client",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--url", required=True, help="a server of servers/bench_env.py")
    parser.add_argument("--sessions", type=int, default=96)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--core", type=int)
    options = parser.parse_args(arguments)
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    play = KINDS[options.kind](options.url, options.sessions)
    play(min(1.0, options.seconds / 2))
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    made, wrong = play(options.seconds)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found = {
        "kind": options.kind,
        "n": made,
        "cpu_us_per_call": round(cpu / max(1, made) * 1e6, 1),
        "per_s": round(made / wall, 1),
        "errors": {"wrong answers": wrong} if wrong else {},
        "error_count": wrong,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
