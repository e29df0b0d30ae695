"""Rollouts per second of our bridge and of TRL's own, and what a call costs each client, in one run.

One Orsay server on one core serves everybody; each trainer is a process of its own on the other core, and
they take turns. Every episode makes four calls of a tool that takes 50 ms. The model is scripted, so that
only the environment side is timed: `_generate_and_score_completions`, with sampling that costs nothing.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import machine, peers
from .report import Run, markdown, notes, plain
from .serve import HERE, RESULTS, names, say, stop
from .servers import RunningServer, ServerSpec
from .train_report import CLIENT, CLIENTS, CONTENDERS, ROLLOUTS, cost_cells, costs, facts, line_cells, lines

DRIVER = HERE / "clients" / "drive.py"
GROUP = 8  # rollouts of each task
RUN_LIMIT_S = 600.0
PACKAGES = ("trl", "torch", "transformers", "datasets", "openreward")
SERVER = ServerSpec(
    "orsay-train",
    "ors",
    (
        *("-m", "orsay", "serve", "wait_env:WaitEnvironment", "bench_env:EchoEnvironment"),
        *("--host", "127.0.0.1", "--port", "PORT", "--runtime", "process", "--workers", "1"),
    ),
)
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "OPENREWARD_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONWARNINGS": "ignore",
}
EXAMPLES = """\
examples:
  benchmarks/train                                 everything (about a quarter of an hour)
  benchmarks/train --quick                         one short run of each: does everything work?
  benchmarks/train --only trl,orsay-rollout --repeat 5
  benchmarks/train --episodes 256 --no-clients     larger batches
  benchmarks/train --only none                     the clients alone

Needs trl, torch and openreward beside orsay. Partial runs write results/partial-train.json and .md; a full
run writes results/train.json and .md.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Runs in their order: one turn of all stands together, so that they share the load of the machine."""

    contenders: tuple[str, ...]
    clients: tuple[str, ...]
    episodes: int
    batches: int
    repeat: int
    seconds: float

    def order(self) -> Iterator[tuple[str, str, int]]:
        for turn in range(1, self.repeat + 1):
            for name in self.contenders:
                yield ROLLOUTS, name, turn
            for name in self.clients:
                yield CLIENT, name, turn

    def command(self, figure: str, name: str, server: RunningServer) -> list[str]:
        if figure == ROLLOUTS:
            rest = ["--episodes", str(self.episodes), "--batches", str(self.batches)]
            module = ["-m", "orsay_bench.train_play", name, "--url", server.url]
            return [*module, *rest, "--server-pid", str(server.pid)]
        rest = ["--sessions", str(self.episodes), "--seconds", str(self.seconds)]
        if name.endswith("-spec"):
            return ["-m", "orsay_bench.train_client", name, "--url", server.url, *rest]
        return [str(DRIVER), name, server.url, *rest]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="benchmarks/train",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--only",
        type=contenders,
        default=tuple(CONTENDERS),
        metavar="NAME,...",
        help="of: " + ", ".join(CONTENDERS) + "; or none",
    )
    made.add_argument("--no-clients", action="store_true", help="leave out what a call costs")
    made.add_argument("--episodes", type=episodes, default=96, help="rollouts at the same time (default 96)")
    made.add_argument("--batches", type=int, default=2, help="batches of each run, after one (default 2)")
    made.add_argument("--repeat", type=int, default=3, help="runs of each; medians count (default 3)")
    made.add_argument("--seconds", type=float, default=4.0, help="length of a client's run (default 4)")
    made.add_argument("--quick", action="store_true", help="one run of 16 rollouts each; no figures to quote")
    made.add_argument("--out", type=Path, help="where to write NAME.json; NAME.md goes beside it")
    return made


def contenders(text: str) -> tuple[str, ...]:
    """An argument type: names of contenders, or `none`."""
    return () if text == "none" else names(CONTENDERS)(text)


def episodes(text: str) -> int:
    """An argument type: a positive multiple of the group's size."""
    if not text.isdigit() or int(text) < 1 or int(text) % GROUP:
        raise argparse.ArgumentTypeError(f"expected a multiple of {GROUP}, not {text!r}")
    return int(text)


def plan(options: argparse.Namespace) -> Plan:
    clients = () if options.no_clients else tuple(CLIENTS)
    if options.quick:
        return Plan(options.only, clients, episodes=16, batches=1, repeat=1, seconds=1.0)
    return Plan(options.only, clients, options.episodes, options.batches, options.repeat, options.seconds)


def surroundings() -> dict[str, str]:
    """Environment variables of the processes that play."""
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **VARIABLES, "PYTHONPATH": os.pathsep.join(paths)}


def measure(chosen: Plan, figure: str, name: str, turn: int, server: RunningServer, core: int | None) -> Run:
    """One run in a process of its own; one that fails is a note, not the end."""
    command = [sys.executable, *chosen.command(figure, name, server)]
    if core is not None:
        command += ["--core", str(core)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RUN_LIMIT_S, env=surroundings()
        )
    except subprocess.TimeoutExpired:
        return Run(figure, name, turn, {}, failed=f"no result within {RUN_LIMIT_S:.0f} s")
    return run_of(figure, name, turn, done)


def run_of(figure: str, name: str, turn: int, done: subprocess.CompletedProcess[str]) -> Run:
    """Result of the ended process, or the reason of its failure."""
    if done.returncode:
        return Run(figure, name, turn, {}, failed=(done.stderr or done.stdout).strip()[-600:])
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if result["error_count"]:
        return Run(figure, name, turn, {}, failed=f"errors: {result['errors']}")
    return Run(figure, name, turn, result)


def headline(run: Run) -> str:
    """Progress line of a finished run."""
    if run.failed:
        return f"FAILED: {run.failed.splitlines()[-1][:200]}"
    keys = ("rollouts_per_s", "batch_s", "cpu_s", "cpu_us_per_call", "other_cpu")
    return ", ".join(f"{key} {run.result[key]:g}" for key in keys if key in run.result)


class Book:
    """The runs so far, written out after each turn so that an interrupted benchmark leaves what it has."""

    def __init__(self, chosen: Plan, out: Path, about: dict[str, Any]) -> None:
        self._plan, self._out, self._about = chosen, out, about
        self.runs: list[Run] = []

    def tables(self) -> tuple[list[list[str]], list[list[str]]]:
        """Tables of contenders and of clients, each with its head."""
        judged = not self._about.get("quick")
        found = line_cells(lines(self.runs), self._plan.episodes, judged=judged)
        return found, cost_cells(costs(self.runs))

    def write(self, *, complete: bool) -> None:
        self._out.parent.mkdir(parents=True, exist_ok=True)
        remarks = notes(self.runs)
        document = {
            **self._about,
            "complete": complete,
            "load_average_at_end": round(os.getloadavg()[0], 2),
            "rollouts": facts(lines(self.runs)),
            "client": facts(costs(self.runs)),
            "notes": remarks,
            "runs": [asdict(run) for run in self.runs],
        }
        self._out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        first, second = self.tables()
        parts = [markdown(first), markdown(second, texts=0)]
        if remarks:
            parts.append("\n".join(f"- {remark}" for remark in remarks))
        self._out.with_suffix(".md").write_text("\n\n".join(parts) + "\n")


def execute(chosen: Plan, book: Book, cores: tuple[int | None, int | None]) -> bool:
    """All runs in order against one server; False when somebody interrupted."""
    steps = list(chosen.order())
    begin = time.monotonic()
    complete = False
    try:
        with RunningServer(SERVER, peers=Path(), logs=RESULTS / "logs", core=cores[0]) as server:
            server.wait_until("/ready")
            for count, (figure, name, turn) in enumerate(steps, 1):
                passed = int(time.monotonic() - begin)
                say(f"[{count:3}/{len(steps)} {passed // 60:3}:{passed % 60:02}] {name}, run {turn} ...")
                book.runs.append(measure(chosen, figure, name, turn, server, cores[1]))
                say(f"{' ' * 17}{headline(book.runs[-1])}")
                book.write(complete=False)
        complete = True
    except KeyboardInterrupt:
        say("interrupted: showing what there is")
    finally:
        book.write(complete=complete)
    return complete


def versions() -> dict[str, str]:
    """Versions of everything that may affect the results."""
    training = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {**peers.versions(sys.executable), **training}


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        say(f"not installed: {', '.join(missing)}; pip install 'orsay[trl]' openreward==0.1.167")
        return 2
    signal.signal(signal.SIGTERM, stop)
    chosen = plan(options)
    full = chosen == plan(parser().parse_args([])) and not options.quick
    out = options.out or RESULTS / ("train" if full else "partial-train")
    (RESULTS / "logs").mkdir(parents=True, exist_ok=True)
    machine.allow_open_files()
    cores = machine.cores()
    about = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "cores": {"server": cores[0], "trainer": cores[1]},
        "versions": versions(),
        "episodes": chosen.episodes,
        "batches": chosen.batches,
        "repeat": chosen.repeat,
        "quick": options.quick,
    }
    book = Book(chosen, out, about)
    complete = execute(chosen, book, cores)
    first, second = book.tables()
    if len(first) > 1:
        print(plain(first))
    if len(second) > 1:
        print("\n" + plain(second, texts=0))
    for note in notes(book.runs):
        print(f"note: {note}")
    print(f"written: {out.with_suffix('.json')} and {out.with_suffix('.md')}")
    return 0 if complete and not any(run.failed for run in book.runs) else 1


if __name__ == "__main__":
    sys.exit(main())
