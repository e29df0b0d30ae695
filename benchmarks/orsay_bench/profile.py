"""Profile of a request: CPU time in the gateway and in the worker.

Loads one server as benchmarks/serve does. First, undisturbed, it measures the CPU time of each process per
request; then it samples each process with py-spy and divides that time among the files that were running.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import machine, peers
from .report import markdown, number
from .serve import HERE, RESULTS, say, stop
from .servers import SERVERS, RunningServer

EXAMPLES = """\
examples:
  benchmarks/profile                               tool calls, --runtime process
  benchmarks/profile --server orsay-local --tool echo_sync
  benchmarks/profile --mode episodes --by function
  benchmarks/profile --server openreward           a peer, for comparison
"""
RATE_HZ = 300
# threads that wait for work; the sampler takes some of them for busy ones
WAITING = re.compile(
    r"^(\w+\.)*(wait|get|run|_run|_take|_worker|_watch_parent) "
    r"\((.*/)?(threading|queue|threads?|worker|selectors|logs)\.py:\d+\)$"
)
FRAME = re.compile(r"^(?P<function>.*) \((?P<file>[^()]+?)(?::(?P<line>\d+))?\)$")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="benchmarks/profile",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--server",
        choices=[s.name for s in SERVERS.values() if s.protocol == "ors"],
        default="orsay-process",
    )
    made.add_argument("--mode", choices=["calls", "pings", "episodes"], default="calls")
    made.add_argument("--tool", choices=["echo", "echo_sync"], default="echo")
    made.add_argument("--sessions", type=int, default=64)
    made.add_argument("--seconds", type=float, default=5.0, help="length of each part (default 5)")
    made.add_argument("--by", choices=["file", "function", "line"], default="file")
    made.add_argument("--top", type=int, default=25, help="lines of each table (default 25)")
    made.add_argument("--inclusive", action="store_true", help="count what a line called, too")
    made.add_argument(
        "--peers", type=Path, default=HERE.parent / ".cache" / "peers", help="virtual environments"
    )
    return made


def place(frame: str, by: str) -> str:
    """The file, function or line of a frame; file names start at their package."""
    found = FRAME.match(frame)
    if found is None:
        return frame
    file = "/".join(Path(found["file"]).parts[-3:])
    if by == "file":
        return file
    return f"{file} {found['function']}" + (f":{found['line']}" if by == "line" else "")


def shares(lines: Iterable[str], by: str, *, inclusive: bool = False) -> dict[str, float]:
    """Parts of all samples, from stacks written as `outer;inner count`; the largest first."""
    counted: Counter[str] = Counter()
    total = 0
    for line in lines:
        stack, _, count = line.strip().rpartition(" ")
        if not stack or not count.isdigit():
            continue
        frames = stack.split(";")
        if WAITING.match(frames[-1]):
            continue
        total += int(count)
        for name in {place(frame, by) for frame in (frames if inclusive else frames[-1:])}:
            counted[name] += int(count)
    return {name: count / total for name, count in counted.most_common()}


def table(title: str, us_per_request: float, parts: dict[str, float], top: int) -> list[list[str]]:
    shown = list(parts.items())[:top]
    lines = [[name, f"{share * 100:.1f}%", number(share * us_per_request)] for name, share in shown]
    return [[title, "share", "us"], *lines]


def roles(pids: Sequence[int], first: int) -> dict[int, str]:
    """Names of the active processes: the started one, and its descendants."""
    return {pid: "gateway" if pid == first else f"worker {pid}" for pid in pids}


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, stop)
    machine.allow_open_files()
    logs = RESULTS / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    spec = SERVERS[options.server]
    peers.ensure(options.peers, [name for name in ("py-spy", spec.peer) if name], say)
    server_core, generator_core = machine.cores()
    with RunningServer(spec, peers=options.peers, logs=logs, core=server_core) as server:
        server.wait_until("/ready" if spec.ours else "/health")
        before = server.tree.cpu_by_pid()
        clean = Load(options, server, generator_core, options.seconds).result()
        after = server.tree.cpu_by_pid()
        requests = clean["n"]
        spent = {pid: after[pid] - before.get(pid, 0.0) for pid in after}
        costs = {pid: s / requests * 1e6 for pid, s in spent.items() if s > 0.02 * sum(spent.values())}
        say(f"{clean['per_cpu_s']:g} per CPU second; other_cpu {clean['other_cpu']:g}")
        loading = Load(options, server, generator_core, options.seconds * len(costs) + 3)
        for pid, role in roles(list(costs), server.pid).items():
            stacks = sample(options.peers, pid, options.seconds, logs / "stacks.txt", generator_core)
            parts = shares(stacks, options.by, inclusive=options.inclusive)
            title = f"{role}: {costs[pid]:.1f} us"
            print(markdown(table(title, costs[pid], parts, options.top), texts=0), end="\n\n")
        loading.result()
    return 0


class Load:
    """The generator, running beside; its requests are opened and closed within it."""

    def __init__(
        self, options: argparse.Namespace, server: RunningServer, core: int | None, seconds: float
    ) -> None:
        command = [sys.executable, "-m", "orsay_bench.ors_load", "--url", server.url]
        command += ["--server-pid", str(server.pid), "--mode", options.mode, "--tool", options.tool]
        command += ["--sessions", str(options.sessions), "--warmup", "0", "--seconds", str(seconds)]
        command += [] if core is None else ["--core", str(core)]
        self._limit_s = seconds + 60
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(HERE)}
        )

    def result(self) -> dict[str, Any]:
        try:
            out, _ = self._process.communicate(timeout=self._limit_s)
        finally:
            self._process.kill()
        found: dict[str, Any] = json.loads(out)
        return found


def sample(root: Path, pid: int, seconds: float, out: Path, core: int | None) -> list[str]:
    time.sleep(1.0)  # let the load reach its pace
    command = [str(root / "py-spy" / "bin" / "py-spy"), "record", "--pid", str(pid), "--format", "raw"]
    command += ["--rate", str(RATE_HZ), "--duration", str(max(1, round(seconds))), "--output", str(out)]
    with machine.on_core(core):
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode:
        raise SystemExit(f"py-spy failed (it may need root): {done.stderr.strip()[-400:]}")
    return out.read_text().splitlines()


if __name__ == "__main__":
    sys.exit(main())
