"""Display of an evaluation's progress and result, with rich."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from orsay_eval.comparison import Comparison, Difference
from orsay_eval.progress import Progress
from orsay_protocol.evaluation import Estimate, EvaluationReport, Quantiles
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from ..plain import one_line, safe

__all__ = ["ProgressBar", "show_comparison", "show_report"]

_LINES = 10  # lines of progress without a terminal
_MOST_TASKS = 5


class ProgressBar:
    """Progress bar with mean reward and rate; a few lines if the output is not a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("playing", total=None, shown="")
        self._reported = 0
        self._faults = 0
        self.planned = 0
        self.done = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def progress(self, now: Progress) -> None:
        """Show an ended episode."""
        self.planned, self.done = now.planned, now.done
        shown = "" if now.mean is None else f"mean {now.mean:.3f}  "
        shown += f"{now.per_minute:.0f}/min" if now.last is not None else ""
        shown += f"  {now.lost} lost" if now.lost else ""
        self._bar.update(self._task, total=now.planned, completed=now.done, shown=shown)
        if now.last is None and now.resumed:
            self.note(f"continuing: {now.resumed} of {now.planned} episodes were played before")
        if now.last is not None and now.last.fault is not None:
            self._report_fault(now.last.task, now.last.fault, now.last.fault_message)
        tenth = _LINES * now.done // max(1, now.planned)
        if not self._console.is_terminal and now.last is not None and tenth > self._reported:
            self._reported = tenth
            self._console.print(f"{now.done}/{now.planned}  {shown}", soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a sentence above the bar."""
        self._bar.console.print(Text(safe(text), style="yellow"), soft_wrap=True)

    def _report_fault(self, task: str, fault: str, message: str) -> None:
        """Print the first faults; the report has all of them."""
        self._faults += 1
        if self._faults <= _MOST_TASKS:
            more = " (further ones are in the report)" if self._faults == _MOST_TASKS else ""
            self.note(f"lost {one_line(task)} to {one_line(fault)}: {message[:300]}{more}")


def show_report(console: Console, report: EvaluationReport, output: Path | None) -> None:
    """Print the summary as a table."""
    summary = report.summary
    table = Table(
        title=one_line(f"{report.model} on {report.environment}, split {report.split}"), show_header=False
    )
    table.add_column(style="bold")
    table.add_column()
    played = f"{summary.episodes} of {summary.planned}" if report.ended_at is None else str(summary.episodes)
    table.add_row("episodes", f"{played}: {summary.n_tasks} tasks, {summary.k} attempts each")
    table.add_row("mean reward", _estimate(summary.mean_reward))
    table.add_row(f"solved (reward >= {summary.success_threshold:g})", _estimate(summary.success))
    for entry in summary.pass_at_k:
        if entry.k > 1:
            table.add_row(f"pass@{entry.k}", _estimate(entry))
    table.add_row("ended by", _counts(summary.stops) or "-")
    if summary.faults:
        table.add_row("lost to faults", Text(_counts(summary.faults), "red"))
    if summary.retried:
        table.add_row("retried faults", Text(_counts(summary.retried), "yellow"))
    tokens = summary.tokens
    if tokens.input or tokens.output:
        cached = f", {tokens.cached:,} of them cached" if tokens.cached else ""
        reasoning = f", {tokens.reasoning:,} of them reasoning" if tokens.reasoning else ""
        table.add_row("tokens", f"{tokens.input:,} in{cached}; {tokens.output:,} out{reasoning}")
    table.add_row("turns", _quantiles(summary.turns, ""))
    if tokens.output:
        table.add_row("answer of the model", _quantiles(summary.latency, " s"))
    table.add_row("episode", _quantiles(summary.seconds, " s"))
    rate = 60 * summary.episodes / summary.wall_seconds if summary.wall_seconds else 0.0
    table.add_row("took", f"{summary.wall_seconds:.1f} s, {rate:.0f} episodes a minute")
    console.print(table)
    if summary.mean_reward is not None and summary.mean_reward.low is not None:
        console.print("[...] are 95% confidence intervals, clustered by task", style="dim")
    if output is not None and summary.episodes:
        console.print(f"report: {output}", soft_wrap=True)


def show_comparison(console: Console, found: Comparison) -> None:
    """Print both means, the tasks that changed most, and the verdict."""
    table = Table(
        title=one_line(f"{found.a.environment}, split {found.a.split}: {found.tasks} tasks in both")
    )
    for column in ("", "A", "B", "B - A", "p"):
        table.add_column(column)
    table.add_row("mean reward", *_difference(found.reward))
    table.add_row("solved", *_difference(found.success))
    console.print(Text(safe(f"A: {found.a.name} ({found.a.model})\nB: {found.b.name} ({found.b.model})")))
    console.print(table)
    for which, changed in (("better", found.better), ("worse", found.worse)):
        shown = ", ".join(f"{task} {a:.2f} -> {b:.2f}" for task, a, b in changed[:_MOST_TASKS])
        if shown:
            console.print(Text(safe(f"B is {which} at {len(changed)} tasks, most at: {shown}")))
    if found.left_out:
        console.print(Text(f"{found.left_out} tasks are in one of the two only, and left out", "yellow"))
    for note in found.notes:
        console.print(Text(safe(f"note: {note}"), "yellow"))
    console.print(Text(found.verdict(), "bold"), soft_wrap=True)


def _difference(found: Difference) -> tuple[Text, ...]:
    size = f"{found.difference:+.3f}"
    if found.low is not None:
        size += f" [{found.low:+.3f}, {found.high:+.3f}]"
    return tuple(Text(cell) for cell in (f"{found.a:.3f}", f"{found.b:.3f}", size, f"{found.p:.2g}"))


def _estimate(found: Estimate | None) -> Text:
    if found is None:
        return Text("nothing was scored", "red")
    if found.low is None:
        return Text(f"{found.mean:.3f}")
    return Text(f"{found.mean:.3f}  [{found.low:.3f}, {found.high:.3f}]")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _quantiles(found: Quantiles | None, unit: str) -> str:
    if found is None:
        return "-"
    return f"{found.mean:.3g}{unit} (median {found.p50:.3g}, 95% {found.p95:.3g}, most {found.max:.3g})"
