"""CPU time of a call in its client, by library and by number of sessions on one event loop.

Our client, the one of openreward as it comes, and aiohttp by hand (the floor) play the same server, which
has a core of its own. All keep the event loop that asyncio gives them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import machine, peers
from .report import markdown, number, plain
from .serve import HERE, RESULTS, names, say, stop
from .servers import SERVERS, RunningServer, ServerFailed

DRIVER = HERE / "clients" / "drive.py"
CLIENTS: dict[str, str | None] = {"orsay": None, "openreward": "openreward", "aiohttp": None, "httpx": None}
DEFAULT = ("orsay", "openreward", "aiohttp")
FLOOR = "aiohttp"
EXAMPLES = """\
examples:
  benchmarks/client                                16, 256 and 1,000 sessions against our server
  benchmarks/client --quick                        one short run of each
  benchmarks/client --clients orsay,httpx --sessions 16,1000 --seconds 8
  benchmarks/client --server openreward            the same against another server
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="benchmarks/client",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    servers = [spec.name for spec in SERVERS.values() if spec.protocol == "ors" and spec.name != "raw-asgi"]
    made.add_argument(
        "--clients",
        type=names(CLIENTS),
        default=DEFAULT,
        metavar="NAME,...",
        help="of: " + ", ".join(CLIENTS),
    )
    made.add_argument("--server", choices=servers, default="orsay-process")
    made.add_argument(
        "--sessions", type=counts, default=(16, 256, 1000), metavar="N,...", help="default 16,256,1000"
    )
    made.add_argument("--seconds", type=float, default=5.0, help="length of a run (default 5)")
    made.add_argument("--repeat", type=int, default=3, help="runs of each; medians count (default 3)")
    made.add_argument("--quick", action="store_true", help="one run of 1 s each")
    made.add_argument("--out", type=Path, help="where to write NAME.json; NAME.md goes beside it")
    made.add_argument(
        "--peers",
        type=Path,
        default=HERE.parent / ".cache" / "peers",
        help="virtual environments of the peers",
    )
    return made


def counts(text: str) -> tuple[int, ...]:
    """Argument type: positive numbers, separated by commas."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"expected numbers such as 16,256,1000, not {text!r}")
    return found


def measure(
    kind: str,
    sessions: int,
    seconds: float,
    *,
    server: str,
    peers_root: Path,
    cores: tuple[int | None, int | None],
) -> dict[str, Any]:
    """One run against a fresh server; a failure is a result with `failed`."""
    peer = CLIENTS[kind]
    python = str(peers.python_of(peers_root, peer)) if peer else sys.executable
    command = [python, str(DRIVER), kind]
    options = ["--sessions", str(sessions), "--seconds", str(seconds)]
    if cores[1] is not None:
        options += ["--core", str(cores[1])]
    found: dict[str, Any] = {"kind": kind, "sessions": sessions}
    try:
        with RunningServer(
            SERVERS[server], peers=peers_root, logs=RESULTS / "logs", core=cores[0]
        ) as running:
            running.wait_until("/health")
            done = subprocess.run(
                [*command, running.url, *options], capture_output=True, text=True, timeout=120 + 2 * seconds
            )
    except ServerFailed as error:
        return {**found, "failed": str(error)}
    except subprocess.TimeoutExpired:
        return {**found, "failed": "no result in time"}
    if done.returncode:
        return {**found, "failed": done.stderr.strip()[-600:]}
    return {**found, **json.loads(done.stdout.strip().splitlines()[-1])}


def median_cost(runs: Sequence[dict[str, Any]], kind: str, sessions: int) -> float | None:
    found = [
        r["cpu_us_per_call"]
        for r in runs
        if (r["kind"], r["sessions"]) == (kind, sessions) and "failed" not in r
    ]
    return statistics.median(found) if found else None


def table(runs: Sequence[dict[str, Any]], clients: Sequence[str], sessions: Sequence[int]) -> list[list[str]]:
    """Microseconds per call, with the multiple of the floor where that was measured."""
    lines = [["client: CPU us per call", *(f"{count:,} sessions" for count in sessions)]]
    for kind in clients:
        line = [kind]
        for count in sessions:
            cost, floor = median_cost(runs, kind, count), median_cost(runs, FLOOR, count)
            multiple = f" ({number(cost / floor)}x)" if cost and floor else ""
            line.append("" if cost is None else number(cost) + multiple)
        lines.append(line)
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, stop)
    seconds, repeat = (1.0, 1) if options.quick else (options.seconds, options.repeat)
    (RESULTS / "logs").mkdir(parents=True, exist_ok=True)
    machine.allow_open_files()
    wanted = {SERVERS[options.server].peer, *(CLIENTS[kind] for kind in options.clients)}
    peers.ensure(options.peers, sorted(peer for peer in wanted if peer), say)
    runs: list[dict[str, Any]] = []
    for turn in range(1, repeat + 1):
        for count in options.sessions:
            for kind in options.clients:
                run = measure(
                    kind,
                    count,
                    seconds,
                    server=options.server,
                    peers_root=options.peers,
                    cores=machine.cores(),
                )
                runs.append(run)
                shown = run.get("failed") or f"{run['cpu_us_per_call']} us per call, errors {run['errors']}"
                say(f"[run {turn}/{repeat}] {kind}, {count} sessions: {shown}")
    cells = table(runs, options.clients, options.sessions)
    standard = RESULTS / (
        "client" if tuple(options.clients) == DEFAULT and not options.quick else "partial-client"
    )
    out = options.out or standard
    facts = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "server": options.server,
        "versions": peers.versions(sys.executable),
        "seconds": seconds,
    }
    out.with_suffix(".json").write_text(json.dumps({**facts, "runs": runs}, indent=1) + "\n")
    out.with_suffix(".md").write_text(markdown(cells, texts=0) + "\n")
    print(plain(cells, texts=0))
    print(f"written: {out.with_suffix('.json')} and {out.with_suffix('.md')}")
    return 0 if not any("failed" in run for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
