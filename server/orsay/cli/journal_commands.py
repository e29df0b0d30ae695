"""Subcommands of ``orsay journal``, with tables and progress bars."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from sqlalchemy import Connection

from ..journal.database import Store
from ..journal.driver_errors import journal_down
from ..journal.export import Export, dataset_of, existing
from ..journal.options import JournalOptions
from ..journal.read.counts import Tally
from ..journal.rollout_export import RolloutExport
from ..journal.search.index import forget
from ..journal.write import retention
from ..plain import one_line, safe
from .terminal import write_lines

__all__ = ["export_rollouts_to", "export_to", "prune", "show_tally", "vacuum"]


def show_tally(console: Console, found: Tally) -> None:
    """Contents of a journal, in three tables."""
    console.print(Text(safe(found.journal), style="bold"))
    search = f", {decimal(found.search_bytes)} to search in it" if found.search_bytes else ""
    console.print(f"{decimal(found.size_bytes)}{search}")
    still = f", {found.unended:,} of them without an end" if found.unended else ""
    console.print(
        f"{found.sessions:,} sessions{still}; {found.calls:,} calls; {found.evaluations:,} evaluations"
    )
    if found.rollouts:
        console.print(f"{found.rollouts:,} logged rollouts with {found.rollout_messages:,} messages")
    if found.first_at is None or found.last_at is None:
        console.print("Nothing was played yet.")
        return
    console.print(f"from {_when(found.first_at)} to {_when(found.last_at)}")
    table = _table("environment", "sessions", "with a fault", "last")
    for each in found.environments:
        table.add_row(
            one_line(each.environment), f"{each.sessions:,}", f"{each.faults:,}", _when(each.last_at)
        )
    console.print(table)
    table = _table("run", "episodes", "steps", "reward", "solved", "lost", "last")
    for run in found.runs:
        table.add_row(
            one_line(run.run), f"{run.episodes:,}", f"{run.steps or ''}",
            _mean(run.reward_mean, run.reward_low),
            _share(run.success), _share(run.fault_rate), _when(run.last_at),
        )  # fmt: skip
    console.print(table)
    if found.faults:
        console.print("faults: " + ", ".join(f"{one_line(name)} {n:,}" for name, n in found.faults.items()))


def export_to(options: JournalOptions, export: Export, output: str, kind: str, console: Console) -> None:
    """Write the file or folder. Raises JournalDown, ConfigError, OSError, and ImportError without
    ``datasets``.
    """
    with existing(options) as store, _bar(console, lambda: _progress(export)) as show:
        if kind == "jsonl":
            _write_lines(store, export, output, show)
        else:
            _write_table(store, export, Path(output), kind, show)
    if output != "-" or console.is_terminal:
        what = "trajectories" if export.recipe.full else "episodes"
        console.print(f"Exported {export.written:,} {what} of {export.seen:,} sessions to {safe(output)}")
    if export.trials:
        console.print(
            f"Left out {export.trials:,} trials: orsay check, orsay play, playground (--trials has them)"
        )
    if export.silent:
        console.print(f"Left out {export.silent:,}: their clients never asked for a prompt (--full has them)")
    if export.without_tools:
        console.print(f"Of {export.without_tools:,}, the tools are unknown: 'tools' is empty")


def export_rollouts_to(options: JournalOptions, export: RolloutExport, output: str, console: Console) -> None:
    """Write rollouts as JSON lines. Raises JournalDown, ConfigError and OSError."""
    with (
        existing(options) as store,
        _bar(console, lambda: ("exporting", export.seen, export.total)) as show,
    ):
        _write_lines(store, export, output, show)
    if output != "-" or console.is_terminal:
        console.print(f"Exported {export.written:,} of {export.seen:,} rollouts to {safe(output)}")


def prune(options: JournalOptions, console: Console, *, dry_run: bool) -> int:
    """Remove sessions and rollouts beyond the retention bounds of ``options``."""
    kinds: dict[str, tuple[_Plan, _Removal]] = {
        "sessions": (retention.to_remove, retention.remove),
        "rollouts": (retention.rollouts_to_remove, retention.remove_rollouts),
    }
    counts = dict.fromkeys(kinds, 0)
    with existing(options) as store, _bar(console, lambda: ("removing", sum(counts.values()), None)) as show:
        for kind, (plan, remove) in kinds.items():
            while True:
                with store.reading() as connection:
                    ids = plan(connection, options, time.time())
                if dry_run:
                    counts[kind] = len(ids)
                if dry_run or not ids:
                    break
                for part in retention.steps(ids):
                    with store.writing() as connection:
                        remove(connection, part)
                    counts[kind] += len(part)
                    show()
    rollouts = f" and {counts['rollouts']:,} rollouts" if counts["rollouts"] else ""
    what = f"{counts['sessions']:,} sessions{rollouts}"
    if dry_run:
        more = " at least" if max(counts.values()) >= _MANY else ""
        console.print(f"Would remove{more} {what}")
    else:
        room = "; 'orsay journal vacuum' gives room back" if any(counts.values()) else ""
        console.print(f"Removed {what}{room}")
    return 0


def vacuum(options: JournalOptions, console: Console, *, rewrite: bool) -> int:
    """Return free space to the disk; the index for text search is rebuilt at the next search."""
    with existing(options) as store:
        with store.reading() as connection:
            before = _disk_bytes(store, connection)
            forget(connection)
        with console.status("vacuum"):
            if rewrite or not store.is_sqlite:
                _rewrite(store, full=rewrite)
            else:
                _give_back(store)
        with store.reading() as connection:
            after = _disk_bytes(store, connection)
    console.print(f"{safe(store.location)}: {decimal(before)} before, {decimal(after)} now")
    return 0


_Plan: TypeAlias = Callable[[Connection, JournalOptions, float], list[int]]
_Removal: TypeAlias = Callable[[Connection, Sequence[int]], None]
_MANY = 2000  # sessions that retention plans at a time


def _write_lines(store: Store, export: Export | RolloutExport, output: str, show: Callable[[], None]) -> None:
    with _output(output) as write:
        while not export.done:
            with store.reading() as connection:
                lines = export.lines(connection)
            write(lines)
            show()


@contextlib.contextmanager
def _output(output: str) -> Iterator[Callable[[bytes], object]]:
    """Standard output, or a file that is renamed to its name once it is complete."""
    if output == "-":
        yield write_lines
        sys.stdout.buffer.flush()
        return
    part = Path(f"{output}.part")
    try:
        with part.open("wb") as file:
            yield file.write
        os.replace(part, output)
    finally:
        part.unlink(missing_ok=True)


def _write_table(store: Store, export: Export, path: Path, kind: str, show: Callable[[], None]) -> None:
    import datasets  # optional, and slow to import

    datasets.disable_progress_bars()
    found = dataset_of(export, store, lambda _: show())
    if kind == "dataset":
        found.save_to_disk(str(path))
        return
    part = path.with_name(f"{path.name}.part")
    try:
        found.to_parquet(str(part))
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _give_back(store: Store) -> None:
    """Return free pages to the disk in small steps, so that a running server is hardly delayed."""
    while True:
        with store.reading() as connection:
            if retention.free_pages(connection) == 0:
                break
        with store.writing() as connection:
            retention.give_back(connection)
    with contextlib.closing(store.engine.raw_connection()) as raw:  # what is in the log goes into the file
        raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _rewrite(store: Store, *, full: bool) -> None:
    """Rewrite the whole SQLite file; for PostgreSQL, ``VACUUM`` or ``VACUUM FULL``."""
    statement = "VACUUM FULL" if full and not store.is_sqlite else "VACUUM"
    raw = store.engine.raw_connection()
    try:
        if not store.is_sqlite:
            raw.dbapi_connection.autocommit = True  # type: ignore[union-attr]  # psycopg's own
        with contextlib.closing(raw.cursor()) as cursor:
            cursor.execute(statement)
            if store.is_sqlite:
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except Exception as exc:  # of either driver
        raise journal_down(exc, store.location) from exc
    finally:
        raw.detach()
        raw.close()


def _disk_bytes(store: Store, connection: Any) -> int:
    path = store.options.path
    return retention.size_bytes(connection) if path is None else path.stat().st_size


@contextlib.contextmanager
def _bar(console: Console, now: Callable[[], tuple[str, int, int | None]]) -> Iterator[Callable[[], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None)

        def show() -> None:
            what, done, total = now()
            progress.update(task, description=what, completed=done, total=total)

        yield show


def _progress(export: Export) -> tuple[str, int, int | None]:
    if export.unindexed and export.total is not None:
        return "indexing", max(0, export.total - export.unindexed), export.total
    return "exporting", export.seen, export.total


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number in (0, len(columns) - 1) else "right")
    return table


def _when(moment: float) -> str:
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M")


def _mean(mean: float | None, low: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.3f}" if low is None else f"{mean:.3f} ± {mean - low:.3f}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
