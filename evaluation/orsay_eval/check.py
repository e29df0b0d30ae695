"""Assertions on a report, for tests; failures include the value, its interval and the tasks."""

from __future__ import annotations

from orsay_protocol.evaluation import Estimate, EvaluationReport

__all__ = ["assert_mean", "assert_pass_at_k"]

_WORST = 5


def assert_mean(
    report: EvaluationReport, at_least: float, *, surely: bool = False, max_lost: float = 0.1
) -> None:
    """Raises AssertionError when the mean reward is below ``at_least``.

    With ``surely`` the lower end of its 95% interval must reach it. A share of episodes lost to
    faults above ``max_lost`` fails too, since the remaining ones may be biased.
    """
    _check_lost(report, max_lost)
    _check("mean reward", report.summary.mean_reward, at_least, surely, report)


def assert_pass_at_k(
    report: EvaluationReport, k: int, at_least: float, *, surely: bool = False, max_lost: float = 0.1
) -> None:
    """Raises AssertionError when pass@k is below ``at_least``, ValueError for a ``k`` not in the report."""
    known = [entry.k for entry in report.summary.pass_at_k]
    if k > report.summary.k:
        raise ValueError(f"pass@{k} needs {k} attempts at each task; there were {report.summary.k}")
    _check_lost(report, max_lost)
    found = next((entry for entry in report.summary.pass_at_k if entry.k == k), None)
    if found is None and known and k not in known:
        raise ValueError(f"the report has pass@k for {known}, not for {k}")
    _check(f"pass@{k}", found, at_least, surely, report)


def _check(
    what: str, found: Estimate | None, at_least: float, surely: bool, report: EvaluationReport
) -> None:
    if found is None:
        raise AssertionError(f"{_head(report)}: nothing was scored")
    reached = found.mean if not surely else found.low if found.low is not None else found.mean
    if reached >= at_least:
        return
    interval = "" if found.low is None else f" (95% interval {found.low:.3f} to {found.high:.3f})"
    wanted = f"at least {at_least:g}" + (" at the lower end" if surely else "")
    raise AssertionError(
        f"{_head(report)}: {what} {found.mean:.3f}{interval}, wanted {wanted}\n{_worst(report)}"
    )


def _check_lost(report: EvaluationReport, max_lost: float) -> None:
    summary = report.summary
    lost = summary.episodes - summary.scored
    if lost and lost > max_lost * summary.episodes:
        kinds = ", ".join(f"{count} {kind}" for kind, count in summary.faults.items())
        last = next(e for e in reversed(report.episodes) if e.fault is not None)
        raise AssertionError(
            f"{_head(report)}: {lost} of {summary.episodes} episodes were lost to faults ({kinds}), which "
            f"says nothing of the model. The last one, {last.task}: {last.fault_message}"
        )


def _head(report: EvaluationReport) -> str:
    summary = report.summary
    size = f"{summary.n_tasks} tasks, k={summary.k}"
    return f"{report.model} on {report.environment}, split {report.split} ({size})"


def _worst(report: EvaluationReport) -> str:
    scored = [e for e in report.episodes if e.reward is not None]
    scored.sort(key=lambda episode: (episode.reward, episode.index, episode.attempt))
    lines = [
        f"  {e.task} attempt {e.attempt}: reward {e.reward:g}, {e.stop} after {e.turns} turns, {e.sid}"
        for e in scored[:_WORST]
    ]
    return "\n".join(["lowest:", *lines])
