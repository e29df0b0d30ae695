"""How long the console's pages take with a journal of 100,000 sessions: the questions to the journal, JSON
made.

Each page is asked for some times, as a browser would: the first answer is shown apart, since it finds less in
memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orsay.journal import query
from orsay.journal.filters import Filter
from orsay.journal.ids import moment_of
from orsay.journal.location import JournalOptions, journal_url
from orsay.journal.schema import sessions
from orsay.journal.search import catch_up
from orsay.journal.store import Store
from pydantic_core import to_json
from sqlalchemy import Connection, select

from . import machine

ROOT = Path(__file__).parents[2]
LIMIT_MS = 200.0
EXAMPLES = """\
examples:
  benchmarks/journal-pages                                a SQLite journal of 100,000 sessions, a minute or
  two benchmarks/journal-pages --sessions 5000                does everything work? no figures to quote
  benchmarks/journal-pages --journal postgresql://u@h/db  in an empty database
"""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one page; ``cpu_ms`` is what this process worked for it, however busy the machine
    was.
    """

    page: str
    first_ms: float
    median_ms: float
    worst_ms: float
    cpu_ms: float
    kilobytes: float


def main() -> int:
    """Exit status 1 when a page took longer than it may."""
    args = _arguments()
    with _place(args.journal) as place:
        store = Store(JournalOptions(journal_url(place)))
        store.open()
        try:
            _fill(store, args.sessions)
            left, indexed_s = _index(store)
            timings = [_time(store, page, ask, args.repeat) for page, ask in _pages(store)]
        finally:
            store.close()
    kind = "PostgreSQL" if "://" in place else "SQLite"
    print(_table(timings, kind, args.sessions, indexed_s))
    if args.out is not None:
        found = {
            "journal": kind,
            "sessions": args.sessions,
            "indexed_s": round(indexed_s, 1),
            "machine": machine.describe(),
            "pages": [asdict(timing) for timing in timings],
        }
        args.out.write_text(json.dumps(found, indent=2) + "\n")
    slow = [each.page for each in timings if each.median_ms > LIMIT_MS]
    if slow or left:
        print(
            f"slower than {LIMIT_MS:g} ms: {', '.join(slow) or 'nothing'}; not indexed: {left}",
            file=sys.stderr,
        )
    return 1 if slow or left else 0


def _arguments() -> argparse.Namespace:
    made = argparse.ArgumentParser(
        prog="benchmarks/journal-pages",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--sessions", type=int, default=100_000, help="how many to make (100000)")
    made.add_argument("--repeat", type=int, default=9, help="how often each page is asked for (9)")
    made.add_argument("--journal", help="an empty database instead of a temporary file")
    made.add_argument("--out", type=Path, help="write the figures as JSON")
    return made.parse_args()


@contextmanager
def _place(named: str | None) -> Iterator[str]:
    if named is not None:
        yield named
        return
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder, "journal.db"))


def _fill(store: Store, count: int) -> None:
    sys.path.insert(0, str(ROOT))  # the made-up sessions are the tests' own
    from tests.journal.fill import Fill, fill

    what = Fill(sessions=count, runs=[f"run-{n}" for n in range(40)], steps=100, tasks=250, open=200)
    began = time.perf_counter()
    with store.writing() as connection:
        fill(connection, what)
    print(f"{count} sessions made in {time.perf_counter() - began:.0f} s", file=sys.stderr)


def _index(store: Store) -> tuple[int, float]:
    """What is left, and the seconds that it took."""
    began = time.perf_counter()
    while True:
        with store.reading() as connection:
            left = catch_up(connection, 5)
        if left == 0 or time.perf_counter() - began > 900:
            return left, time.perf_counter() - began
        print(f"{left} sessions to index", file=sys.stderr)


def _pages(store: Store) -> list[tuple[str, Callable[[Connection], Any]]]:
    with store.reading() as connection:
        ids = list(connection.scalars(select(sessions.c.id).order_by(sessions.c.id)))
        page = query.trajectories(connection, limit=50, before=ids[len(ids) // 2])
    one, early = page.items[0].id, moment_of(ids[0]) + 60
    run = next(each.run for each in page.items if each.labelled)

    def pages(before: str | None = None, **wanted: Any) -> Callable[[Connection], Any]:
        return lambda connection: query.trajectories(connection, Filter(**wanted), 50, before)

    return [
        ("trajectories", pages()),
        ("trajectories, half way down", pages(before=one)),
        ("of an environment", pages(environment="doors")),
        ("of a run", pages(run=run)),
        ("of a step of a run", pages(run=run, step=50)),
        ("of a task", pages(environment="doors", task="train:7")),
        ("with a fault", pages(fault="any")),
        ("with a fault that none has", pages(fault="overloaded")),
        ("with a reward that none has", pages(reward_min=7.0)),
        ("of the first minute", pages(until=early)),
        ("text: one word", pages(text="karma")),
        ("text: words that are rare together", pages(text='"karma mango fjord lotus"')),
        ("text: nothing found", pages(text="nowhere")),
        ("text, and a reward that none has", pages(text="karma", reward_min=7.0)),
        ("one trajectory", lambda connection: query.trajectory(connection, one)),
        ("runs", lambda connection: query.runs(connection)),
        ("series of a run", lambda connection: query.series(connection, run)),
        ("series of unlabelled sessions", lambda connection: query.series(connection, "anyone 2026-05-28")),
        ("tasks of an environment", lambda connection: query.task_map(connection, environment="doors")),
        ("tasks of a run", lambda connection: query.task_map(connection, run=run)),
        ("evaluations", lambda connection: query.evaluations(connection)),
    ]


def _time(store: Store, page: str, ask: Callable[[Connection], Any], repeat: int) -> Timing:
    times: list[float] = []
    cpu: list[float] = []
    size = 0
    for _ in range(repeat):
        began, worked = time.perf_counter(), time.thread_time()
        with store.reading() as connection:
            size = len(to_json(ask(connection)))
        times.append((time.perf_counter() - began) * 1000)
        cpu.append((time.thread_time() - worked) * 1000)
    return Timing(page, times[0], statistics.median(times), max(times), statistics.median(cpu), size / 1000)


def _table(timings: list[Timing], kind: str, count: int, indexed_s: float) -> str:
    lines = [
        f"{kind}, {count} sessions; their index for text was made in {indexed_s:.0f} s",
        "",
        f"{'page':38} {'first':>8} {'median':>8} {'worst':>8} {'cpu':>8} {'size':>10}",
    ]
    for each in timings:
        lines.append(
            f"{each.page:38} {each.first_ms:5.0f} ms {each.median_ms:5.0f} ms {each.worst_ms:5.0f} ms"
            f" {each.cpu_ms:5.0f} ms {each.kilobytes:7.0f} kB"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
