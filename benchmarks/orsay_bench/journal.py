"""CPU time that the journal adds to a call: servers with each kind of journal, on one core.

CPU is that of the server and its workers together; PostgreSQL's is listed separately. All servers run at the
same time, and get the same load in turn, for a quarter of a second each, repeatedly: the speed of a shared
machine changes within seconds. The cost of a journal is the median over turns of the ratio to the server
without. Latencies come from separate runs without pauses. Calls are answered in one write, also on a busy
machine; ``streams`` are calls that are answered as streams, which are two rows in replayable sessions.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from . import machine, peers
from .gateway_loads import Load, Setup, run_load, start_load
from .postgres import RunningPostgres, is_there, running_postgres
from .report import Run, markdown, notes, number, plain
from .serve import HERE, RESULTS, say
from .servers import SERVERS, RunningServer
from .slices import run_in_slices

EXAMPLES = """\
examples:
  benchmarks/journal                     everything, some minutes
  benchmarks/journal --quick             does everything work? no figures to quote
  benchmarks/journal --only off,process --loads calls --repeat 9
"""
LIMIT = 0.25  # more CPU per call than without a journal
JOURNALS = ("off", "process", "fsync", "postgresql")
CALLS = 10  # of an episode
LATENCY_TURNS = 3
Running: TypeAlias = tuple[RunningServer, RunningPostgres | None]


@dataclass(frozen=True, slots=True)
class Kind:
    """A load: its kind of request, and the number of calls in each."""

    load: Load
    title: str
    calls: int = 1
    stream_after_s: float = 60
    replayable: bool = False


KINDS = (
    Kind(Load("calls", ("--mode", "calls")), "64 sessions calling at once"),
    Kind(Load("calls-8", ("--mode", "calls", "--sessions", "8")), "8 sessions calling at once"),
    Kind(Load("calls-1", ("--mode", "calls", "--sessions", "1")), "one session, one call after the other"),
    Kind(
        Load("episodes", ("--mode", "episodes", "--calls", str(CALLS))),
        f"episodes of {CALLS} calls with create, prompt and delete",
        CALLS,
    ),
    Kind(
        Load("streams", ("--mode", "calls", "--tool", "slow", "--input", '{"seconds": 0.1}')),
        "64 sessions, calls of 0.1 s",
        stream_after_s=0.02,
    ),
    Kind(
        Load("streams-replayable", ("--mode", "calls", "--tool", "slow", "--input", '{"seconds": 0.1}')),
        "64 sessions that can be replayed, calls of 0.1 s",
        stream_after_s=0.02,
        replayable=True,
    ),
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="benchmarks/journal",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--seconds", type=float, default=2.0, help="of load on each server in a turn (default 2)"
    )
    made.add_argument("--repeat", type=int, default=9, help="turns; medians count (default 9)")
    made.add_argument("--quick", action="store_true", help="one turn of 1 s each")
    made.add_argument("--only", default=",".join(JOURNALS), help="journals, with commas (default: all)")
    made.add_argument("--loads", default="", help="loads, with commas: calls, calls-8, … (default: all)")
    made.add_argument("--out", type=Path, help="where to write NAME.json; NAME.md goes beside it")
    made.add_argument("--peers", type=Path, default=HERE.parent / ".cache" / "peers", help=argparse.SUPPRESS)
    return made


@contextlib.contextmanager
def running(journal: str, kind: Kind, setup: Setup, postgres: RunningPostgres | None) -> Iterator[Running]:
    """Our server with such a journal, ready."""
    with tempfile.TemporaryDirectory(prefix="journal-") as folder:
        url = f"{folder}/journal.db" if journal in ("process", "fsync") else "off"
        if journal == "postgresql" and postgres is not None:
            url = postgres.new_database()
        durability = "fsync" if journal == "fsync" else "process"
        variables = {
            "ORSAY_JOURNAL": url,
            "ORSAY_JOURNAL_DURABILITY": durability,
            "ORSAY_STREAM_AFTER_S": str(kind.stream_after_s),
            "BENCH_REPLAYABLE": "yes" if kind.replayable else "no",
        }
        spec = replace(SERVERS["orsay-process"], name=f"orsay-process-{journal}", variables=variables)
        with RunningServer(spec, peers=setup.peers, logs=setup.logs, core=setup.server_core) as server:
            server.wait_until("/ready")
            yield server, postgres if journal == "postgresql" else None


def measure(
    journals: Sequence[str],
    kinds: Sequence[Kind],
    setup: Setup,
    postgres: RunningPostgres | None,
    *,
    seconds: float,
    repeat: int,
) -> list[Run]:
    """All runs: for each load fresh servers with empty journals, and turns of one run on each."""
    runs: list[Run] = []
    for kind in kinds:
        with contextlib.ExitStack() as stack:
            servers = {
                journal: stack.enter_context(running(journal, kind, setup, postgres)) for journal in journals
            }
            for turn in range(1, repeat + 1):
                say(f"{kind.load.name}, turn {turn} of {repeat} ...")
                runs += _turn(kind, servers, setup, seconds, turn)
    return runs


def _turn(kind: Kind, servers: Mapping[str, Running], setup: Setup, seconds: float, turn: int) -> list[Run]:
    """A run on each server."""
    started = dict(servers if turn % 2 else reversed(tuple(servers.items())))
    before = {name: database.tree.cpu_s() for name, (_, database) in started.items() if database}
    count = len(started)
    starts = [
        partial(start_load, kind.load, server, setup, seconds=seconds * count, warmup=float(count))
        for server, _ in started.values()
    ]
    runs: list[Run] = []
    found = run_in_slices(starts, limit_s=120 + 2 * count * seconds)
    for (name, (server, database)), result in zip(started.items(), found, strict=True):
        if isinstance(result, RuntimeError):
            say(f"  FAILED: {name}: {str(result)[-300:]}")
            runs.append(Run(kind.load.name, name, turn, {}, failed=str(result)))
            continue
        if database:
            calls = max(1.0, float(result["n"])) * (seconds + 1) / seconds  # with the warm-up
            spent = database.tree.cpu_s() - before[name]
            result["database_us_per_request"] = round(spent / calls * 1e6, 1)
        if turn <= LATENCY_TURNS:
            alone = run_load(kind.load, server, setup, seconds=seconds)
            result |= {key: value for key, value in alone.items() if key.endswith("_ms")}
        runs.append(Run(kind.load.name, name, turn, result))
    return runs


def median(runs: Sequence[Run], kind: Kind, journal: str, key: str) -> float | None:
    """Over the runs of one load with one journal, per call."""
    same = (kind.load.name, journal)
    found = [float(run.result[key]) for run in runs if (run.figure, run.server) == same and key in run.result]
    if not found:
        return None
    return statistics.median(found) / (kind.calls if key.endswith("per_request") else 1)


def share(runs: Sequence[Run], kind: Kind, journal: str) -> float | None:
    """Ratio of a call's CPU time to that without a journal: the median over the turns."""
    spent = {
        (run.server, run.turn): float(run.result["server_us_per_request"])
        for run in runs
        if run.figure == kind.load.name and "server_us_per_request" in run.result
    }
    found = [
        us / without - 1
        for (name, turn), us in spent.items()
        if name == journal and (without := spent.get(("off", turn)))
    ]
    return statistics.median(found) if found else None


def table(runs: Sequence[Run], journals: Sequence[str], kinds: Sequence[Kind]) -> list[list[str]]:
    """Head and lines: a column for each journal."""
    lines = [["", *(f"journal {name}" for name in journals)]]
    for kind in kinds:
        cells = []
        for journal in journals:
            value = median(runs, kind, journal, "server_us_per_request")
            more = share(runs, kind, journal)
            text = "" if value is None else number(value)
            cells.append(f"{text} ({more:+.0%})" if more is not None and journal != "off" else text)
        lines.append([f"{kind.title}: CPU, us per call", *cells])
        for key, title in (("p50_ms", "median, ms"), ("p99_ms", "p99, ms")):
            values = [median(runs, kind, journal, key) for journal in journals]
            lines.append([f"{kind.title}: {title}", *("" if v is None else number(v) for v in values)])
        spent = [median(runs, kind, journal, "database_us_per_request") for journal in journals]
        if any(spent):
            title = f"{kind.title}: CPU of PostgreSQL itself, us per call"
            lines.append([title, *("" if v is None else number(v) for v in spent)])
    return lines


def verdict(runs: Sequence[Run], journals: Sequence[str], kinds: Sequence[Kind]) -> list[str]:
    """A sentence about each target."""
    found = []
    for journal in journals:
        for kind in kinds:
            more = share(runs, kind, journal)
            if journal != "off" and more is not None:
                word = "reached" if more <= LIMIT else "NOT reached"
                text = f"journal {journal}, {kind.title}: {more:+.1%} CPU per call"
                found.append(f"{text} (at most +{LIMIT:.0%}: {word})")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    seconds, repeat = (1.0, 1) if options.quick else (options.seconds, options.repeat)
    journals = [name for name in JOURNALS if name in options.only.split(",")]
    if "postgresql" in journals and not is_there():
        say("PostgreSQL is not installed here, or the extra 'postgres' is not: left out")
        journals.remove("postgresql")
    wanted = options.loads.split(",") if options.loads else [kind.load.name for kind in KINDS]
    kinds = [kind for kind in KINDS if kind.load.name in wanted]
    logs = RESULTS / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    machine.allow_open_files()
    setup = Setup(options.peers, logs, *machine.cores())
    with contextlib.ExitStack() as stack:
        postgres = stack.enter_context(running_postgres()) if "postgresql" in journals else None
        runs = measure(journals, kinds, setup, postgres, seconds=seconds, repeat=repeat)
    cells = table(runs, journals, kinds)
    remarks = [*verdict(runs, journals, kinds), *notes(runs)]
    whole = not (options.quick or options.loads or len(journals) < len(JOURNALS))
    out = options.out or RESULTS / ("journal" if whole else "partial")
    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "versions": peers.versions(sys.executable),
        "seconds": seconds,
        "repeat": repeat,
        "table": cells,
        "notes": remarks,
        "runs": [asdict(run) for run in runs],
    }
    out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    out.with_suffix(".md").write_text(
        markdown(cells, texts=0) + "\n\n" + "".join(f"- {remark}\n" for remark in remarks)
    )
    print(plain(cells, texts=0))
    for remark in remarks:
        print(f"note: {remark}")
    print(f"written: {out.with_suffix('.json')} and {out.with_suffix('.md')}")
    return 1 if any(run.failed for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
