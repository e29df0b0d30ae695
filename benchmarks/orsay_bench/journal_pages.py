"""Times of the console with a journal of 100,000 sessions and a million calls: each request of each
page over HTTP, with and without keys, and each page in a real browser; on SQLite and on PostgreSQL.

The first answer is listed separately: of a server that has just started, for SQLite with a cold disk cache;
in the browser, of a page opened by its address with an empty cache. Then medians and 95th percentiles, one
request at a time; in the browser, of navigation from another page.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from http.client import HTTPConnection
from pathlib import Path

from . import machine, pages_browser, peers
from .pages_http import asks, forget_files, time_asks
from .pages_journal import API_KEYS, ROOT, Recorded, make_journal
from .postgres import RunningPostgres, is_there, running_postgres
from .processes import ProcessTree
from .report import Run, markdown, notes, number, plain
from .serve import HERE, RESULTS, say
from .servers import SERVERS, RunningServer, ServerFailed

LIMIT_MS = 200.0
KINDS = ("sqlite", "postgresql")
EVALUATIONS = 20
EXAMPLES = """\
examples:
  benchmarks/journal-pages                          everything, eight minutes
  benchmarks/journal-pages --quick                  does everything work? no figures to quote
  benchmarks/journal-pages --only sqlite --no-browser
"""


@dataclass(frozen=True, slots=True)
class Part:
    """Report on one database."""

    there: Recorded
    runs: list[Run]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="benchmarks/journal-pages",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--sessions", type=int, default=100_000, help="how many to make (default 100000)")
    made.add_argument("--repeat", type=int, default=15, help="how often each request is made (default 15)")
    made.add_argument("--visits", type=int, default=5, help="how often each page is opened (default 5)")
    made.add_argument("--quick", action="store_true", help="2000 sessions, each request three times")
    made.add_argument("--only", default=",".join(KINDS), help="databases, with commas (default: both)")
    made.add_argument("--no-browser", action="store_true", help="requests only")
    made.add_argument("--out", type=Path, help="where to write NAME.json; NAME.md goes beside it")
    made.add_argument("--peers", type=Path, default=HERE.parent / ".cache" / "peers", help=argparse.SUPPRESS)
    return made


@contextlib.contextmanager
def running(place: str, options: argparse.Namespace, *keys: str) -> Iterator[RunningServer]:
    """Our server with that journal, ready, on the first core."""
    variables = {"ORSAY_JOURNAL": place, "ORSAY_API_KEYS": json.dumps(keys) if keys else ""}
    variables = {name: value for name, value in variables.items() if value}
    spec = replace(SERVERS["orsay-process"], variables=variables)
    logs = RESULTS / "logs"
    with RunningServer(spec, peers=options.peers, logs=logs, core=machine.cores()[0]) as server:
        server.wait_until("/ready")
        yield server


def save_evaluations(port: int, count: int) -> list[str]:
    """Through the API; their ids."""
    sys.path.insert(0, str(ROOT))
    from tests.console.recorded import report_of

    ids = []
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        for index in range(count):
            body = report_of(f"evaluation-{index}", (index + 1) / count).model_dump_json()
            connection.request("POST", "/console/api/evaluations", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            ids.append(str(json.loads(answer.read())["id"]))
    return ids


def measure(kind: str, folder: Path, postgres: RunningPostgres | None, options: argparse.Namespace) -> Part:
    """Measure with a journal of that kind."""
    say(f"{kind}: a journal of {options.sessions} sessions ...")
    path = folder / "journal.db"
    place = str(path) if postgres is None else postgres.new_database()
    there = make_journal(place, options.sessions)
    beside: list[ProcessTree] = [] if postgres is None else [postgres.tree]

    def forget() -> None:
        if postgres is None:
            forget_files(list(folder.glob("journal*.db")))

    runs: list[Run] = []
    with running(place, options) as server:
        evaluations = save_evaluations(server.port, EVALUATIONS)
    wanted = asks(there, evaluations)
    for name, keys in (("", ()), (" with keys", API_KEYS)):
        with running(place, options, *keys) as server:
            say(f"{kind}{name}: {len(wanted)} requests ...")
            trees = [server.tree, *beside]
            # evaluations were saved without a key, and have no owner
            mine = [each for each in wanted if not keys or each.page != "evaluations" or each.name != "one"]
            key = keys[0] if keys else None
            runs += time_asks(
                kind + name, server.port, mine, options.repeat, key=key, trees=trees, forget=forget
            )
            if not keys and not options.no_browser:
                runs += pages_browser.time_pages(
                    f"{kind} browser", server.url, there, evaluations, options.visits, say
                )
    return Part(there, runs)


def tables(parts: dict[str, Part]) -> tuple[list[list[str]], list[list[str]]]:
    """Tables of requests and of pages: first, median and 95th percentile."""
    requests = [(kind, name) for kind in parts for name in ("", " with keys")]
    pages = [(kind, " browser") for kind in parts]
    return _table(parts, requests, "request"), _table(parts, pages, "page, in the browser")


def _table(parts: dict[str, Part], columns: Sequence[tuple[str, str]], title: str) -> list[list[str]]:
    head = [f"{title}: first / median / p95, ms", *(kind + name for kind, name in columns)]
    found: dict[str, dict[str, str]] = {}
    for kind, name in columns:
        for run in parts[kind].runs:
            if run.server == kind + name:
                keys = ("first_ms", "median_ms", "p95_ms")
                text = "failed" if run.failed else " / ".join(number(run.result[key]) for key in keys)
                found.setdefault(run.figure, {})[run.server] = text
    return [head, *([figure, *(row.get(name, "") for name in head[1:])] for figure, row in found.items())]


def verdict(parts: dict[str, Part]) -> list[str]:
    """Notes for the reader of the measurements, and whether they hold."""
    found = []
    for kind, part in parts.items():
        text = f"{part.there.sessions:,} sessions, {part.there.calls:,} calls"
        found.append(f"{kind}: {text}; the index for text was made in {part.there.indexed_s:.0f} s")
        if part.there.unindexed:
            found.append(f"{kind}: {part.there.unindexed} sessions were NOT in the index for text")
        for what, browser in (("requests", False), ("pages in the browser", True)):
            runs = [r for r in part.runs if not r.failed and r.server.endswith(" browser") == browser]
            slow = [r for r in runs if r.result["median_ms"] > LIMIT_MS]
            if runs:
                names = "".join(f"; {r.figure} ({r.server}) {r.result['median_ms']:.0f} ms" for r in slow)
                count = f"{len(runs) - len(slow)} of {len(runs)} {what} within {LIMIT_MS:g} ms at the median"
                found.append(f"{kind}: {count}{names}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.quick:
        options.sessions, options.repeat, options.visits = 2_000, 3, 1
    kinds = [name for name in KINDS if name in options.only.split(",")]
    remarks = []
    if "postgresql" in kinds and not is_there():
        remarks.append("PostgreSQL is not installed here, or the extra 'postgres' is not: left out")
        kinds.remove("postgresql")
    missing = None if options.no_browser else pages_browser.problem()
    if missing:
        remarks.append(f"{missing}: pages in the browser are left out")
        options.no_browser = True
    for remark in remarks:
        say(remark)
    whole = len(kinds) == len(KINDS) and not options.no_browser and not options.quick
    whole = whole and options.sessions >= parser().get_default("sessions")
    (RESULTS / "logs").mkdir(parents=True, exist_ok=True)
    began, load = time.monotonic(), machine.describe()
    parts: dict[str, Part] = {}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pages-")))
        for kind in kinds:
            postgres = stack.enter_context(running_postgres()) if kind == "postgresql" else None
            try:
                parts[kind] = measure(kind, folder, postgres, options)
            except ServerFailed as error:
                remarks.append(f"{kind}: FAILED: {error}")
    requests, pages = tables(parts)
    runs = [run for part in parts.values() for run in part.runs]
    after = machine.describe()
    busy = (
        f"load average {load['load_average']} before, {after['load_average']} after, on {load['cores']} cores"
    )
    remarks += [*verdict(parts), f"{busy}, all of this work among it", *notes(runs)]
    out = options.out or RESULTS / ("journal-pages" if whole else "partial-journal-pages")
    document = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {**load, "load_average_after": after["load_average"]},
        "versions": peers.versions(sys.executable),
        "seconds": round(time.monotonic() - began),
        "journals": {kind: asdict(part.there) for kind, part in parts.items()},
        "requests": requests,
        "pages": pages,
        "notes": remarks,
        "runs": [asdict(run) for run in runs],
    }
    out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    cells = [requests] if options.no_browser else [requests, pages]
    texts = [markdown(each, texts=0) for each in cells]
    out.with_suffix(".md").write_text("\n\n".join(texts) + "\n\n" + "".join(f"- {r}\n" for r in remarks))
    print("\n\n".join(plain(each, texts=0) for each in cells))
    for remark in remarks:
        print(f"note: {remark}")
    print(f"written: {out.with_suffix('.json')} and {out.with_suffix('.md')}")
    failed = len(parts) < len(kinds) or any(run.failed for run in runs)
    return 1 if failed or any(part.there.unindexed for part in parts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
