"""Sandboxes of our server beside plain docker commands and a service of these, in one run on one machine.

Each way to have sandboxes is measured in turn, load by load. Wall times depend on other work: the load
average is noted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp

from . import machine, peers
from .processes import ProcessTree
from .report import Run, markdown, number, plain
from .sandbox_loads import LOADS, Size
from .sandbox_subjects import Commands, Failed, Kind, Naive, Orsay, Subject, docker
from .serve import RESULTS, say, stop
from .servers import RunningServer, ServerFailed, ServerSpec

EXAMPLES = """\
examples:
  benchmarks/sandboxes                        everything, about a quarter of an hour
  benchmarks/sandboxes --quick                does everything work? no figures to quote
  benchmarks/sandboxes --only first,commands  two loads
  benchmarks/sandboxes --backend bubblewrap --our-image host
"""
COMMANDS, NAIVE, COLD, WARM = "docker commands", "a service of these", "orsay, cold", "orsay"
WARM_COUNT = 8
WRONG = ("working_failures", "churn_failures", "left")
READINGS = (
    ("create to first answer, ms: p50", "first_ms", "<= 1.3x cold, <= 50 ms warm"),
    ("create to first answer, ms: p95", "first_p95_ms", ""),
    ("8 at once: until all have answered, ms", "eight_ms", ""),
    ("run true, ms: p50", "run_ms", ""),
    ("run true, ms: p95", "run_p95_ms", ""),
    ("run true in 8 sandboxes: per s", "runs_per_s", ""),
    ("5 MB up, ms", "up_ms", "<= 1x"),
    ("5 MB down, ms", "down_ms", "<= 1x"),
    ("fork with 10 MB to first answer, ms", "fork_ms", ""),
    ("idle: memory of the server each, KiB", "server_kib", ""),
    ("idle: RSS inside each, KiB", "agent_rss_kib", ""),
    ("idle: PSS inside each, KiB", "agent_pss_kib", ""),
    ("idle: PSS of the engine's shim each, KiB", "shim_pss_kib", ""),
    ("{working} at once, five tasks each, s", "working_s", ""),
    ("{working} at once: failures", "working_failures", "0"),
    ("{churn} made, asked and ended: per s", "churn_per_s", ""),
    ("{churn} made, asked and ended: failures", "churn_failures", "0"),
    ("left behind: containers, networks, images, processes", "left", "0"),
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="benchmarks/sandboxes",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--quick", action="store_true", help="few of each; no figures to quote")
    made.add_argument("--only", default=",".join(LOADS), help=f"of {', '.join(LOADS)}; default: all")
    made.add_argument(
        "--image", default="python:3.11-slim", help="image of the sandboxes, with bash and python3"
    )
    made.add_argument("--network", choices=("none", "open"), default="none", help="network of the sandboxes")
    made.add_argument("--backend", default="docker", help="back end of our server (default: docker)")
    made.add_argument("--our-image", help="image on that back end, where it has another name")
    made.add_argument("--out", type=Path, help="where to write NAME.json; NAME.md goes beside it")
    return made


def _server(name: str, backend: str, label: str, warm: int) -> ServerSpec:
    command = ("-m", "orsay", "serve", "bench_env:EchoEnvironment", "--host", "127.0.0.1", "--port", "PORT")
    variables = {
        "ORSAY_JOURNAL": "off",
        "ORSAY_SERVER_NAME": label,
        "ORSAY_SANDBOXES_WARM": str(warm),
        "ORSAY_SANDBOXES_MAX": "600",
        "ORSAY_SANDBOXES_IDLE_LIMIT_S": "900",
    }
    spec = (*command, "--runtime", "local", "--sandboxes", backend)
    return ServerSpec(name.replace(", ", "-"), "ors", spec, variables=variables)


@asynccontextmanager
async def _running(
    name: str, kind: Kind, backend: str, label: str
) -> AsyncIterator[tuple[Subject, ProcessTree | None]]:
    if name == COMMANDS:
        yield Commands(kind), None
        return
    spec = (
        ServerSpec("naive-sandboxes", "ors", ("naive_sandboxes.py", "PORT"))
        if name == NAIVE
        else _server(name, backend, label, 0 if name == COLD else WARM_COUNT)
    )
    with RunningServer(spec, peers=Path(), logs=RESULTS / "logs", core=None) as server:
        await asyncio.to_thread(server.wait_until)
        timeout = aiohttp.ClientTimeout(total=600)
        async with aiohttp.ClientSession(
            server.url, timeout=timeout, connector=aiohttp.TCPConnector(limit=0)
        ) as session:
            yield (Naive(session, kind) if name == NAIVE else Orsay(session, kind)), server.tree


async def _left(label: str) -> int:
    """Objects of the engine that a server has left there."""
    mine = f"label=orsay.server={label}"
    found = await asyncio.gather(
        docker("ps", "--all", "--quiet", "--filter", mine),
        docker("network", "ls", "--quiet", "--filter", mine),
        docker("images", "--all", "--quiet", "--filter", mine),
    )
    return sum(len(each.split()) for each in found)


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def measure(kind: Kind, loads: Sequence[str], backend: str, our_image: str | None, book: Book) -> None:
    """All loads on all subjects, load by load, the subjects in turn."""
    ours = replace(kind, image=our_image or kind.image)
    runs = book.runs
    async with contextlib.AsyncExitStack() as stack:
        label = f"bench-{secrets.token_hex(4)}"
        labels = {COLD: f"{label}-cold", WARM: label}
        subjects: dict[str, tuple[Subject, ProcessTree | None]] = {}
        for name in (COMMANDS, NAIVE, COLD, WARM):
            subjects[name] = await stack.enter_async_context(
                _running(name, ours if name in labels else kind, backend, labels.get(name, ""))
            )
        for load in loads:
            for name, (subject, tree) in subjects.items():
                say(f"{load}: {name} ...")
                try:
                    result = dict(await LOADS[load](subject, book.size, tree))
                except Failed as error:
                    runs.append(Run(load, name, 1, {}, failed=str(error)))
                    say(f"  FAILED: {str(error)[-300:]}")
                    continue
                say(f"  {', '.join(f'{key} {value:g}' for key, value in result.items())}")
                runs.append(Run(load, name, 1, result))
            book.write(complete=False)
        processes = {name: tree.pids() for name, (_, tree) in subjects.items() if tree is not None}
    for name in (COLD, WARM):
        living = [pid for pid in processes[name] if _lives(pid)]
        runs.append(Run("left", name, 1, {"left": await _left(labels[name]) + len(living)}))


def table(runs: Sequence[Run], size: Size) -> list[list[str]]:
    """Head and lines; in brackets, the multiple of docker's commands."""
    names = (COMMANDS, NAIVE, COLD, WARM)
    cells = [["", *names, "target"]]
    for title, key, target in READINGS:
        found: Mapping[str, float] = {run.server: run.result[key] for run in runs if key in run.result}
        if not found:
            continue
        base = found.get(COMMANDS)
        line = [title.format(working=size.working, churn=size.churn)]
        for name in names:
            value = found.get(name)
            ratio = f" ({number(value / base)}x)" if value is not None and base and name != COMMANDS else ""
            line.append("" if value is None else number(value) + ratio)
        cells.append([*line, target])
    return cells


@dataclass
class Book:
    """The runs so far, written out after each load, so that an interrupted benchmark leaves what it has."""

    out: Path
    facts: Mapping[str, Any]
    size: Size
    runs: list[Run] = field(default_factory=list)

    def write(self, *, complete: bool) -> list[str]:
        """Returns the notes."""
        load = machine.describe()["load_average"]
        remarks = [f"{run.figure}, {run.server}: failed: {run.failed}" for run in self.runs if run.failed]
        remarks.append(f"load average {self.facts['machine']['load_average']} before, {load} after")
        cells = table(self.runs, self.size)
        document = {
            **self.facts,
            "complete": complete,
            "table": cells,
            "notes": remarks,
            "runs": [asdict(run) for run in self.runs],
        }
        self.out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
        notes = "".join(f"- {remark}\n" for remark in remarks)
        self.out.with_suffix(".md").write_text(f"{markdown(cells, texts=1)}\n\n{notes}")
        return remarks


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, stop)
    loads = [name for name in LOADS if name in options.only.split(",")]
    size = Size().quick() if options.quick else Size()
    kind = Kind(options.image, options.network)
    (RESULTS / "logs").mkdir(parents=True, exist_ok=True)
    machine.allow_open_files()
    whole = len(loads) == len(LOADS) and not options.quick and options.network == "none"
    name = "sandboxes" if options.backend == "docker" else f"sandboxes-{options.backend}"
    facts = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "versions": peers.versions(sys.executable),
        "engine": asyncio.run(docker("version", "--format", "{{.Server.Version}}")).decode().strip(),
        "kind": asdict(kind),
        "backend": options.backend,
        "warm": WARM_COUNT,
        "size": asdict(size),
    }
    book = Book(options.out or RESULTS / (name if whole else "partial-sandboxes"), facts, size)
    try:
        asyncio.run(measure(kind, loads, options.backend, options.our_image, book))
    except (ServerFailed, Failed) as error:
        say(f"FAILED: {error}")
        return 1
    remarks = book.write(complete=True)
    print(plain(table(book.runs, size), texts=1))
    for remark in remarks:
        print(f"note: {remark}")
    print(f"written: {book.out.with_suffix('.json')} and {book.out.with_suffix('.md')}")
    ours = (run for run in book.runs if run.server in (COLD, WARM))
    wrong = sum(value for run in ours for key, value in run.result.items() if key in WRONG)
    return 1 if wrong or any(run.failed for run in book.runs) else 0


if __name__ == "__main__":
    sys.exit(main())
