"""Starts each server in turn on one core, loads it from another, and writes the results.

Figures are requests per second of *server CPU time*, the whole process tree counted, which holds on a
shared machine; ratios are against openreward as it comes, from the same run. Latencies are only worth
reading where little other work ran meanwhile; the notes under the table say where that was not so.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from . import machine, peers
from .figures import FIGURES, Figure
from .hogs import HOGS, busy_machine
from .loops import Result
from .processes import busy_s
from .report import Run, as_json, grid, markdown, notes, plain, rows
from .servers import BASELINE, SERVERS, RunningServer, ServerFailed, ServerSpec

HERE = Path(__file__).resolve().parent.parent
RESULTS = HERE / "results"
EXAMPLES = """\
examples:
  benchmarks/serve                                 all figures, all servers (about half an hour)
  benchmarks/serve --quick                         one short run of each: does everything work?
  benchmarks/serve --only calls,latency            two figures
  benchmarks/serve --servers orsay-process,openreward --seconds 8 --repeat 5
  benchmarks/serve --list                          names of figures and servers

Partial runs write results/partial.json and .md; a full run writes results/serve.json and .md.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """Runs in order: all servers of one turn run back to back, under similar conditions."""

    figures: tuple[Figure, ...]
    servers: tuple[ServerSpec, ...]
    seconds: float
    warmup: float
    repeat: int

    def order(self) -> Iterator[tuple[Figure, ServerSpec, int]]:
        for figure in self.figures:
            for turn in range(1, (figure.repeat or self.repeat) + 1):
                for spec in self.servers:
                    if spec.name in figure.servers:
                        yield figure, spec, turn


@dataclass(frozen=True, slots=True)
class Bench:
    """Paths and addresses during a run."""

    plan: Plan
    peers: Path
    logs: Path
    server_core: int | None
    generator_core: int | None

    def measure(self, figure: Figure, spec: ServerSpec, turn: int) -> Run:
        """One run against a fresh server; a server or a generator that fails is a note, not the end."""
        try:
            with RunningServer(spec, peers=self.peers, logs=self.logs, core=self.server_core) as server:
                busy, own = busy_s(), time.process_time()
                health_s = server.wait_until("/health" if spec.name != "raw-asgi" else "/")
                others = busy_s() - busy - (time.process_time() - own) - server.tree.cpu_s()
                result: Result = {
                    "health_s": round(health_s, 3),
                    "other_cpu": round(max(0.0, others) / health_s, 3),
                }
                if spec.ours:
                    result["ready_s"] = round(server.wait_until("/ready"), 3)
                if figure.hogs:
                    with busy_machine(limit_s=self._limit_s(figure)):
                        result |= {**self._load(figure, spec, server), "hogs": HOGS}
                elif figure.arguments:
                    result |= self._load(figure, spec, server)
                result["strays"] = len(server.strays())
                return Run(figure.name, spec.name, turn, result)
        except (ServerFailed, GeneratorFailed) as error:
            return Run(figure.name, spec.name, turn, {}, failed=str(error))

    def _load(self, figure: Figure, spec: ServerSpec, server: RunningServer) -> Result:
        arguments = ["--url", server.url, "--server-pid", str(server.pid), *figure.arguments]
        if figure.timed:
            arguments += ["--warmup", str(self.plan.warmup), "--seconds", str(self.plan.seconds)]
        if self.generator_core is not None:
            arguments += ["--core", str(self.generator_core)]
        limit_s = self._limit_s(figure)
        try:
            done = subprocess.run(
                [sys.executable, "-m", f"orsay_bench.{spec.protocol}_load", *arguments],
                capture_output=True,
                text=True,
                timeout=limit_s,
                env={**os.environ, "PYTHONPATH": str(HERE)},
            )
        except subprocess.TimeoutExpired as error:
            raise GeneratorFailed(f"no result within {limit_s:.0f} s") from error
        if done.returncode:
            raise GeneratorFailed((done.stderr or done.stdout).strip()[-600:])
        result: Result = json.loads(done.stdout.strip().splitlines()[-1])
        return result

    def _limit_s(self, figure: Figure) -> float:
        return figure.limit_s + 2 * self.plan.seconds


class GeneratorFailed(Exception):
    """The load generator ended without a result; the message has the end of its output."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="benchmarks/serve",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--only", type=names(FIGURES), default=(), metavar="FIGURE,...", help="these figures")
    made.add_argument("--servers", type=names(SERVERS), default=(), metavar="NAME,...", help="these servers")
    made.add_argument("--seconds", type=float, default=5.0, help="length of a timed run (default 5)")
    made.add_argument("--repeat", type=int, default=3, help="runs of each figure; medians count (default 3)")
    made.add_argument("--hold-seconds", type=float, default=30.0, help="length of the hold runs (default 30)")
    made.add_argument(
        "--quick", action="store_true", help="one run of 1 s each, fewer sessions; no figures to quote"
    )
    made.add_argument(
        "--limit-minutes", type=float, default=75.0, help="begin no run after this (default 75)"
    )
    made.add_argument("--out", type=Path, help="where to write NAME.json; NAME.md goes beside it")
    made.add_argument(
        "--peers",
        type=Path,
        default=HERE.parent / ".cache" / "peers",
        help="virtual environments of the peers",
    )
    made.add_argument("--list", action="store_true", help="show figures and servers, run nothing")
    return made


class names:
    """An argument type: names from a table, separated by commas."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._table = table

    def __call__(self, text: str) -> tuple[str, ...]:
        found = tuple(part.strip() for part in text.split(",") if part.strip())
        unknown = [name for name in found if name not in self._table]
        if unknown or not found:
            known = ", ".join(self._table)
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(unknown) or 'nothing'}; there are: {known}"
            )
        return found


def lasting(figure: Figure, seconds: float) -> Figure:
    arguments = (*figure.arguments, "--seconds", str(seconds))
    return replace(figure, arguments=arguments, limit_s=figure.limit_s + seconds)


def plan(options: argparse.Namespace) -> Plan:
    figures = [FIGURES[name] for name in options.only or FIGURES]
    chosen = options.servers or [spec.name for spec in SERVERS.values() if spec.by_default]
    servers = tuple(SERVERS[name] for name in chosen)
    hold_s = 5.0 if options.quick else options.hold_seconds
    figures = [lasting(figure, hold_s) if "hold" in figure.arguments else figure for figure in figures]
    if options.quick:
        quick = [replace(f, arguments=(*f.arguments, *f.quick_arguments), repeat=1) for f in figures]
        return Plan(tuple(quick), servers, seconds=1.0, warmup=0.3, repeat=1)
    return Plan(tuple(figures), servers, seconds=options.seconds, warmup=1.0, repeat=options.repeat)


def headline(figure: Figure, run: Run) -> str:
    """Progress line of a finished run."""
    if run.failed:
        return f"FAILED: {run.failed.splitlines()[-1][:120]}"
    parts = [f"{r.key} {run.result[r.key]:g}" for r in figure.readings if r.key in run.result]
    if "other_cpu" in run.result:
        parts.append(f"other_cpu {run.result['other_cpu']:g}")
    return ", ".join(parts)


class Book:
    """The runs so far, written out after each figure so that an interrupted benchmark leaves what it has."""

    def __init__(self, plan: Plan, out: Path, facts: dict[str, Any]) -> None:
        self._plan, self._out, self._facts = plan, out, facts
        self.runs: list[Run] = []

    def cells(self) -> list[list[str]]:
        servers = [spec.name for spec in self._plan.servers]
        ours = [spec.name for spec in self._plan.servers if spec.ours]
        self.rows = rows(self.runs, self._plan.figures, servers, BASELINE, ours)
        return grid(self.rows, servers, ours, judged=not self._facts.get("quick"))

    def write(self, *, complete: bool) -> None:
        cells, found = self.cells(), notes(self.runs)
        self._out.parent.mkdir(parents=True, exist_ok=True)
        document = {
            **self._facts,
            "complete": complete,
            "baseline": BASELINE,
            "table": as_json(self.rows),
            "notes": found,
            "runs": [asdict(run) for run in self.runs],
        }
        self._out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        remarks = "".join(f"- {note}\n" for note in found)
        self._out.with_suffix(".md").write_text(markdown(cells) + "\n" + (f"\n{remarks}" if remarks else ""))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def stop(signum: int, frame: object) -> None:
    raise SystemExit(128 + signum)  # the open `with` blocks end what was started


def show_list() -> None:
    print("figures:")
    for figure in FIGURES.values():
        print(f"  {figure.name:12} {'; '.join(figure.title_of(r) for r in figure.readings)}")
    print("servers:")
    for spec in SERVERS.values():
        print(f"  {spec.name:18} {'' if spec.by_default else 'only when named; '}{' '.join(spec.command)}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.list:
        show_list()
        return 0
    signal.signal(signal.SIGTERM, stop)
    chosen = plan(options)
    partial = bool(options.quick or options.only or options.servers)
    out = options.out or RESULTS / ("partial" if partial else "serve")
    logs = RESULTS / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    machine.allow_open_files()
    server_core, generator_core = machine.cores()
    if server_core is None:
        say("only one core: server and generator share it, so latencies and wall times mean little")
    peers.ensure(options.peers, sorted({s.peer for s in chosen.servers if s.peer}), say)
    facts = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "cores": {"server": server_core, "generator": generator_core},
        "versions": {spec.name: peers.versions(spec.python(options.peers)) for spec in chosen.servers},
        "seconds": chosen.seconds,
        "repeat": chosen.repeat,
        "quick": options.quick,
    }
    bench = Bench(chosen, options.peers, logs, server_core, generator_core)
    book = Book(chosen, out, facts)
    complete = execute(bench, book, options.limit_minutes * 60)
    print(plain(book.cells()))
    for note in notes(book.runs):
        print(f"note: {note}")
    print(f"written: {out.with_suffix('.json')} and {out.with_suffix('.md')}")
    return 0 if complete else 1


def execute(bench: Bench, book: Book, limit_s: float) -> bool:
    """All runs in order; False when time ran out or somebody interrupted."""
    steps = list(bench.plan.order())
    begin = time.monotonic()
    complete = False
    try:
        for count, (figure, spec, turn) in enumerate(steps, 1):
            passed = time.monotonic() - begin
            if passed > limit_s:
                say(f"out of time after {passed / 60:.0f} minutes: {len(steps) - count + 1} runs left out")
                break
            where = f"[{count:3}/{len(steps)} {int(passed) // 60:3}:{int(passed) % 60:02}]"
            say(f"{where} {figure.name}, {spec.name}, run {turn} ...")
            run = bench.measure(figure, spec, turn)
            book.runs.append(run)
            say(f"{' ' * len(where)} {headline(figure, run)}")
            if count == len(steps) or steps[count][0] is not figure:
                book.write(complete=False)
        else:
            complete = True
    except KeyboardInterrupt:
        say("interrupted: showing what there is")
    finally:
        book.write(complete=complete)
    return complete


if __name__ == "__main__":
    sys.exit(main())
