"""Report of runs: medians, ratios to the baseline, targets, and tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .figures import Figure, Reading

NOT_JUDGED = "not judged (quick)"
REACHED = {True: "reached", False: "NOT reached", None: "no baseline"}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one figure against one server; `failed` holds the reason when there is no result."""

    figure: str
    server: str
    turn: int
    result: Mapping[str, Any]
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Value:
    """A reading of one server over all runs; `reached` is set for our servers where a target stands."""

    median: float
    lowest: float
    highest: float
    runs: int
    ratio: float | None = None
    reached: bool | None = None


@dataclass(frozen=True, slots=True)
class Row:
    figure: str
    title: str
    unit: str
    target: str
    values: Mapping[str, Value]


def values_of(runs: Iterable[Run], figure: str, server: str, key: str) -> list[float]:
    found = (run.result.get(key) for run in runs if run.figure == figure and run.server == server)
    return [float(x) for x in found if isinstance(x, int | float)]


def value_of(values: Sequence[float], base: float | None, reading: Reading, ours: bool) -> Value:
    median = statistics.median(values)
    ratio = median / base if base and reading.compared else None
    reached = reading.target.reached(median, ratio) if ours and reading.target else None
    return Value(median, min(values), max(values), len(values), ratio, reached)


def rows(
    runs: Sequence[Run], figures: Iterable[Figure], servers: Sequence[str], baseline: str, ours: Sequence[str]
) -> list[Row]:
    """One row per reading that at least one server has."""
    made: list[Row] = []
    for figure in figures:
        for reading in figure.readings:
            base = values_of(runs, figure.name, baseline, reading.key)
            measured = {server: values_of(runs, figure.name, server, reading.key) for server in servers}
            values = {
                server: value_of(found, statistics.median(base) if base else None, reading, server in ours)
                for server, found in measured.items()
                if found
            }
            if values:
                target = reading.target.text(reading.unit) if reading.target else ""
                made.append(Row(figure.name, figure.title_of(reading), reading.unit, target, values))
    return made


def number(value: float) -> str:
    """Three digits that matter, thousands separated: 21,432 and 71.7 and 0.63."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    text = f"{value:.1f}" if size >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell(value: Value | None) -> str:
    if value is None:
        return ""
    return number(value.median) + (f" ({number(value.ratio)}x)" if value.ratio is not None else "")


def verdict(row: Row, ours: Sequence[str]) -> str:
    """Result for the target, per server of ours when they differ."""
    if not row.target:
        return ""
    found = {server: row.values[server].reached for server in ours if server in row.values}
    if not found:
        return ""
    if len(set(found.values())) == 1:
        return REACHED[next(iter(found.values()))]
    return ", ".join(f"{server}: {REACHED[reached]}" for server, reached in found.items())


def grid(
    table: Sequence[Row], servers: Sequence[str], ours: Sequence[str], *, judged: bool = True
) -> list[list[str]]:
    """The head and the lines of a table, as texts; a quick run is not judged, it is too short and small."""
    shown = [server for server in servers if any(server in row.values for row in table)]
    head = ["", *shown, "target", "reached?"]
    lines = [
        [
            f"{row.title}, {row.unit}" if row.unit else row.title,
            *(cell(row.values.get(server)) for server in shown),
            row.target,
            verdict(row, ours) if judged or not row.target else NOT_JUDGED,
        ]
        for row in table
    ]
    return [head, *lines]


def plain(cells: Sequence[Sequence[str]], *, texts: int = 2) -> str:
    """Columns of even width; the first and the last `texts` stand to the left, figures to the right."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    last = len(widths) - texts
    made = []
    for line in cells:
        parts = [
            text.ljust(width) if i == 0 or i >= last else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        made.append("  ".join(parts).rstrip())
    return "\n".join([made[0], "-" * len(made[0]), *made[1:]])


def markdown(cells: Sequence[Sequence[str]], *, texts: int = 2) -> str:
    head, *lines = cells
    rule = ["---", *["--:"] * (len(head) - 1 - texts), *["---"] * texts]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def as_json(table: Iterable[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in table]


def notes(runs: Iterable[Run], noisy: float = 0.3) -> list[str]:
    """Notes for the reader of the table: failures, errors, a busy machine, a generator at its limit."""
    made: list[str] = []
    for run in runs:
        where = f"{run.figure}, {run.server}, run {run.turn}"
        if run.failed:
            made.append(f"{where}: failed: {run.failed}")
            continue
        if run.result.get("error_count"):
            made.append(f"{where}: errors {run.result.get('errors')}")
        if not run.result.get("hogs") and run.result.get("other_cpu", 0) > noisy:
            made.append(f"{where}: other work used {run.result['other_cpu']:.2f} of a core meanwhile")
        if run.result.get("generator_cpu", 0) > 0.95:
            made.append(f"{where}: the generator was at its limit ({run.result['generator_cpu']:.2f})")
        if run.result.get("strays"):
            made.append(f"{where}: {run.result['strays']} process(es) were not on the server's core")
        starved = run.result.get("server_starved_ms", 0)
        if starved > 200 or run.result.get("generator_late_ms", 0) > 200:
            late = run.result.get("generator_late_ms", 0)
            made.append(
                f"{where}: within one moment the server was kept off its core for {starved:.0f} ms, "
                f"the generator was late by {late:.0f} ms"
            )
    return made
