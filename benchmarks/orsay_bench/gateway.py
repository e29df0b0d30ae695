"""Cost of a gateway per call: one server alone and behind ours, in turn, on one core; the load on another.

Latencies are at 200 calls a second. CPU is that of the gateway alone. HAProxy, if installed, is the lower
bound for any proxy. With a Docker engine, starts of containers are measured too.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from . import machine, peers
from .gateway_containers import containers
from .gateway_loads import LAYOUTS, LOADS, Layout, Setup, run_load, running
from .report import Run, markdown, notes, number, plain
from .serve import HERE, RESULTS, say
from .servers import SERVERS, ServerFailed

EXAMPLES = """\
examples:
  benchmarks/gateway                          everything, about ten minutes
  benchmarks/gateway --quick                  does everything work? no figures to quote
  benchmarks/gateway --no-containers          without a Docker engine
  benchmarks/gateway --image orsay --repeat 5 starts of the containers of another image
"""
LIMIT_MS = 1.0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="benchmarks/gateway",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--seconds", type=float, default=5.0, help="length of a run (default 5)")
    made.add_argument("--repeat", type=int, default=3, help="runs of each; medians count (default 3)")
    made.add_argument("--quick", action="store_true", help="one run of 1 s each")
    made.add_argument("--no-containers", action="store_true", help="leave out what needs a Docker engine")
    made.add_argument("--image", default="orsay", help="image whose containers are started (default: orsay)")
    made.add_argument("--out", type=Path, help="where to write NAME.json; NAME.md goes beside it")
    made.add_argument("--peers", type=Path, default=HERE.parent / ".cache" / "peers", help=argparse.SUPPRESS)
    return made


def median(runs: Sequence[Run], load: str, layout: str, key: str) -> float | None:
    """Over the runs of one load on one layout that have this key."""
    values = [
        run.result[key] for run in runs if (run.figure, run.server) == (load, layout) and key in run.result
    ]
    return statistics.median(values) if values else None


def added(runs: Sequence[Run], layout: Layout, load: str, key: str) -> float | None:
    """Ratio to the same server alone."""
    value, alone = median(runs, load, layout.name, key), median(runs, load, layout.direct, key)
    return None if value is None or alone is None else value - alone


def table(runs: Sequence[Run], layouts: Sequence[Layout]) -> list[list[str]]:
    """Head and lines: a column for each layout."""
    lines = [["", *(layout.name for layout in layouts)]]
    for title, load, key in (
        ("200 calls/s: p50, ms", "rate", "p50_ms"),
        ("200 calls/s: p99, ms", "rate", "p99_ms"),
        ("64 sessions calling at once: calls per s", "calls", "per_s"),
        ("CPU of what stands in front, us per call", "calls", "server_us_per_request"),
        ("episodes (create, prompt, call, delete) per s", "episodes", "per_s"),
        ("CPU of what stands in front, us per episode", "episodes", "server_us_per_request"),
        ("a call of 1 s: its stream starts after, ms", "stream", "first_ms"),
        ("a call of 1 s: its stream ends after, ms", "stream", "last_ms"),
    ):
        cells = []
        for layout in layouts:
            value = median(runs, load, layout.name, key)
            in_front = key != "server_us_per_request" or layout.front != "none"
            cells.append(number(value) if value is not None and in_front else "")
        lines.append([title, *cells])
    gains = ["added at the median, ms"]
    for layout in layouts:
        gain = added(runs, layout, "rate", "p50_ms") if layout.front != "none" else None
        gains.append("" if gain is None else f"{gain:+.2f}")
    lines.insert(2, gains)
    return lines


def measure(layouts: Sequence[Layout], setup: Setup, *, seconds: float, repeat: int) -> list[Run]:
    """All runs, the layouts taking turns, each on fresh servers."""
    runs: list[Run] = []
    for turn in range(1, repeat + 1):
        for layout in layouts:
            for load in LOADS:
                say(f"run {turn} of {repeat}: {load.name}, {layout.name} ...")
                try:
                    with running(layout, setup) as (front, _):
                        result = run_load(load, front, setup, seconds=seconds)
                    runs.append(Run(load.name, layout.name, turn, result))
                except (ServerFailed, RuntimeError, TimeoutError) as error:
                    runs.append(Run(load.name, layout.name, turn, {}, failed=str(error)))
                    say(f"  FAILED: {str(error)[-300:]}")
    return runs


def verdict(runs: Sequence[Run]) -> str:
    """One sentence about the target."""
    layout = next(each for each in LAYOUTS if each.front == "orsay")
    gain = added(runs, layout, "rate", "p50_ms")
    if gain is None:
        return "nothing was measured of the gateway"
    word = "reached" if gain < LIMIT_MS else "NOT reached"
    return f"the gateway adds {gain:.2f} ms at the median at 200 calls/s (at most {LIMIT_MS:g} ms: {word})"


def page(cells: Sequence[Sequence[str]], starts: Mapping[str, str], remarks: Sequence[str]) -> str:
    """Both tables with their notes."""
    text = markdown(cells, texts=0) + "\n\n"
    if starts:
        text += markdown([["containers", ""], *map(list, starts.items())], texts=0) + "\n\n"
    return text + "".join(f"- {remark}\n" for remark in remarks)


def remarks_on(runs: Sequence[Run]) -> list[str]:
    """Notes for the reader; behind a proxy, the server's own CPU counts as other work."""
    fronted = {layout.name for layout in LAYOUTS if layout.front != "none"}
    alone = [run for run in runs if run.server not in fronted]
    quiet = [replace(run, result={**run.result, "other_cpu": 0.0}) for run in runs if run.server in fronted]
    return notes([*alone, *quiet])


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    seconds, repeat = (1.0, 1) if options.quick else (options.seconds, options.repeat)
    logs = RESULTS / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    machine.allow_open_files()
    setup = Setup(options.peers, logs, *machine.cores())
    layouts = [each for each in LAYOUTS if each.front != "haproxy" or shutil.which("haproxy")]
    peers.ensure(options.peers, sorted({s.peer for x in layouts if (s := SERVERS[x.server]).peer}), say)
    runs = measure(layouts, setup, seconds=seconds, repeat=repeat)
    cells = table(runs, layouts)
    starts: dict[str, str] = {}
    if not options.no_containers:
        starts = containers(options.image, repeat=repeat, logs=logs, say=say)
    remarks = [verdict(runs), *remarks_on(runs)]
    out = options.out or RESULTS / ("partial" if options.quick else "gateway")
    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "versions": peers.versions(sys.executable),
        "seconds": seconds,
        "repeat": repeat,
        "table": cells,
        "containers": starts,
        "notes": remarks,
        "runs": [asdict(run) for run in runs],
    }
    out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    out.with_suffix(".md").write_text(page(cells, starts, remarks))
    print(plain(cells, texts=0))
    for key, value in starts.items():
        print(f"{key}: {value}")
    for remark in remarks:
        print(f"note: {remark}")
    print(f"written: {out.with_suffix('.json')} and {out.with_suffix('.md')}")
    return 1 if any(run.failed for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
