"""Profile of a batch of rollouts in the trainer's process: CPU time by thread and by kind of work.

PYTHONPATH=benchmarks python -m orsay_bench.train_profile orsay-factory

First, undisturbed, it measures the CPU time of a batch; then py-spy samples the same process, and that time
is divided among the kinds of work in its stacks.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import machine, peers
from .profile import RATE_HZ, WAITING
from .report import markdown, number
from .serve import HERE, RESULTS, say, stop
from .servers import RunningServer
from .train import RUN_LIMIT_S, SERVER, episodes, surroundings
from .train_report import CONTENDERS

BATCH = "_generate_and_score_completions"
LOOP = "loop_thread.py"
IDLE = re.compile(r"(^|\.)(select|poll|wait|acquire|result) \(")
# The first that stands anywhere in a stack names its kind; otherwise the innermost package does.
KINDS = (
    ("_orsay_after_turn", "reading turns ahead of TRL"),
    ("parse_response", "reading turns, by transformers"),
    ("apply_chat_template", "chat templates and tokenizer"),
)
PACKAGE = re.compile(
    r"\((?:.*/)?(?P<name>aiohttp|httpx|httpx_aiohttp|orsay_client|orsay_protocol|orsay_trl|trl|torch|openreward)/"
)
WORK = {
    "aiohttp": "HTTP: aiohttp and sockets",
    "httpx": "HTTP: httpx",
    "httpx_aiohttp": "HTTP: httpx",
    "orsay_protocol": "orsay_client",
    "torch": "the rest of TRL",
    "trl": "the rest of TRL",
}


def kind_of(stack: str) -> tuple[str, str] | None:
    """The thread (`trainer` or `loop`) and the kind of work of a stack, `outer;inner`; None for idle ones."""
    frames = stack.split(";")
    in_batch = any(BATCH in frame for frame in frames)
    waits = any(LOOP in frame for frame in frames)
    if WAITING.match(frames[-1]) or IDLE.search(frames[-1]) or in_batch == waits:
        return None  # outside a batch, or the trainer waiting for the loop
    thread = "trainer" if in_batch else "loop"
    for mark, kind in KINDS:
        if mark in stack:
            return thread, kind
    for frame in reversed(frames):
        found = PACKAGE.search(frame)
        if found and LOOP not in frame:
            name = found["name"]
            return thread, WORK.get(name, name)
    return thread, "event loop"


def divided(lines: Iterable[str]) -> dict[tuple[str, str], float]:
    """Shares of the samples that did something, the largest first."""
    counted: Counter[tuple[str, str]] = Counter()
    for line in lines:
        stack, _, count = line.strip().rpartition(" ")
        found = kind_of(stack) if stack and count.isdigit() else None
        if found is not None:
            counted[found] += int(count)
    total = counted.total()
    return {kind: count / total for kind, count in counted.most_common()}


def table(shares: dict[tuple[str, str], float], cpu_s: float) -> list[list[str]]:
    """Milliseconds of a batch by kind of work."""
    rows = [
        [kind, thread, f"{share * 100:.0f}%", number(share * cpu_s * 1e3)]
        for (thread, kind), share in shares.items()
        if share >= 0.005
    ]
    return [["work", "thread", "share", "ms"], *rows]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m orsay_bench.train_profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    ours = [name for name in CONTENDERS if name.startswith("orsay")]
    parser.add_argument("contender", choices=ours)
    parser.add_argument("--episodes", type=episodes, default=96)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--peers", type=Path, default=HERE.parent / ".cache" / "peers")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, stop)
    machine.allow_open_files()
    logs = RESULTS / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    peers.ensure(options.peers, ["py-spy"], say)
    cores = machine.cores()
    with RunningServer(SERVER, peers=Path(), logs=logs, core=cores[0]) as server:
        server.wait_until("/ready")
        command = [sys.executable, "-m", "orsay_bench.train_play", options.contender, "--url", server.url]
        command += ["--episodes", str(options.episodes), "--batches", str(options.batches)]
        command += ["--server-pid", str(server.pid)]
        command += [] if cores[1] is None else ["--core", str(cores[1])]
        clean = _run(command)
        say(f"batch {clean['batch_s']:g} s, CPU {clean['cpu_s']:g} s; other_cpu {clean['other_cpu']:g}")
        spy = [str(options.peers / "py-spy" / "bin" / "py-spy"), "record", "--format", "raw", "--threads"]
        stacks = logs / "stacks.txt"
        _run([*spy, "--rate", str(RATE_HZ), "--output", str(stacks), "--", *command])
    shares = divided(stacks.read_text().splitlines())
    print(markdown(table(shares, clean["cpu_s"]), texts=0))
    return 0


def _run(command: list[str]) -> dict[str, Any]:
    """The result that the player printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S, env=surroundings())
    results = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not results:
        raise SystemExit(f"{command[0]} failed (py-spy may need root): {done.stderr.strip()[-600:]}")
    found: dict[str, Any] = json.loads(results[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
