"""Metrics of the server as families of Prometheus, read from live objects at each scrape.

Labels have few values, all chosen by the server: environments, tools of their tables, fault classes, states,
runtimes. No client can add one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from ..runtimes.base import Gauged, Runtime
from ..sessions.meter import Durations
from ..sessions.registry import Sessions
from .names import RUNTIME_METRICS
from .observed import Observed
from .sandboxes import END_REASONS, KILLS, STARTS, SandboxMeter

if TYPE_CHECKING:  # SQLAlchemy is loaded with a journal only
    from ..journal.write.writer import Writer

__all__ = ["gather"]

_STEP = 1_000
_STATES = ("opening", "starting", "ready", "failed", "closing")
_JOURNAL_STATES = ("ok", "trouble", "off")


@dataclass
class _Living:
    """Count of live sessions, made in steps so that the event loop is not blocked."""

    states: Counter[tuple[str, str]] = field(default_factory=Counter)
    running: Counter[str] = field(default_factory=Counter)


async def _count(sessions: Sessions) -> _Living:
    found = _Living()
    for number, session in enumerate(list(sessions.live.values()), 1):
        name = session.info.name
        found.states[name, session.state] += 1
        if session.calls is not None and session.calls.running:
            found.running[name] += session.calls.running
        if not number % _STEP:
            await asyncio.sleep(0)
    return found


async def gather(observed: Observed) -> list[Metric]:
    """Current values of all families."""
    living = await _count(observed.sessions)
    return [
        *_server(observed),
        *_sessions(observed, living),
        *_calls(observed, living),
        *_runtimes(observed.runtime),
        *_sandboxes(observed.sandboxes),
        *_journal(observed.journal),
    ]


def _server(observed: Observed) -> Iterator[Metric]:
    about = GaugeMetricFamily("orsay_server", "This server: always 1.", labels=["version"])
    about.add_metric([observed.version], 1)
    yield about
    yield _one("orsay_start_time_seconds", "When the server started, since 1970.", observed.started_at)
    runtime = observed.runtime
    yield _one("orsay_environments", "Environments that are hosted.", len(runtime.environments))
    text = "Runtimes whose environments are not known yet."
    yield _one("orsay_runtimes_pending", text, len(runtime.pending))
    text = "Requests refused for their API key."
    yield CounterMetricFamily("orsay_keys_refused", text, value=observed.keys.refused)
    text = "Requests refused for the name they asked at, or the web page they came from."
    yield CounterMetricFamily("orsay_pages_refused", text, value=observed.guard.refused)


def _sessions(observed: Observed, living: _Living) -> Iterator[Metric]:
    meter = observed.sessions.meter
    names = [info.name for info in observed.runtime.environments]
    now = GaugeMetricFamily("orsay_sessions", "Sessions by state.", labels=["environment", "state"])
    for name in sorted({*names, *(name for name, _ in living.states)}):
        for state in _STATES:
            now.add_metric([name, state], living.states[name, state])
    yield now
    opened = CounterMetricFamily("orsay_sessions_opened", "Sessions opened.", labels=["environment"])
    for name, count in list(meter.opened.items()):
        opened.add_metric([name], count)
    yield opened
    ended = CounterMetricFamily(
        "orsay_sessions_ended", "Sessions that are over, by how.", labels=["environment", "reason"]
    )
    for key, count in list(meter.ended.items()):
        ended.add_metric(key, count)
    yield ended
    yield _durations("orsay_session_seconds", "Age of sessions when they ended.", meter.ages)
    faults = CounterMetricFamily(
        "orsay_faults", "Faults by class, those of setup and prompts too.", labels=["environment", "fault"]
    )
    for key, count in list(observed.faults.items()):
        faults.add_metric(key, count)
    yield faults


def _calls(observed: Observed, living: _Living) -> Iterator[Metric]:
    meter = observed.sessions.meter
    calls = CounterMetricFamily(
        "orsay_calls", "Calls by outcome: answer, or a fault.", labels=["environment", "tool", "outcome"]
    )
    for (name, tool), row in list(meter.calls.items()):
        calls.add_metric([name, tool, "answer"], row.answers)
        for fault, count in row.faults.items():
            calls.add_metric([name, tool, fault], count)
    yield calls
    running = GaugeMetricFamily("orsay_calls_running", "Calls without a result yet.", labels=["environment"])
    for info in observed.runtime.environments:
        running.add_metric([info.name], living.running[info.name])
    yield running
    stored_bytes = observed.sessions.totals.stored_bytes
    yield _one("orsay_stored_result_bytes", "Results kept for repeated requests.", stored_bytes)
    timings = list(meter.timings.items())
    texts = {
        "total": ("orsay_call_seconds", "Time of a call, from request to result."),
        "queue": ("orsay_call_queue_seconds", "Time that a call waited before its tool ran."),
        "run": ("orsay_call_run_seconds", "Time that the tool of a call ran."),
        "stream": ("orsay_call_stream_seconds", "Time that the answer of a call was an open stream."),
    }
    for part, (name, text) in texts.items():
        yield _durations(name, text, {environment: getattr(row, part) for environment, row in timings})


def _runtimes(runtime: Runtime) -> Iterator[Metric]:
    if not isinstance(runtime, Gauged):
        return
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for gauge in runtime.gauges():
        labels = RUNTIME_METRICS[gauge.name].labels
        values = tuple(gauge.labels.get(label, "") for label in labels)
        series = found.setdefault(gauge.name, {})  # a runtime that leaves may share its label with a new one
        series[values] = series.get(values, 0.0) + gauge.value
    for name, values_of in found.items():
        known = RUNTIME_METRICS[name]
        family = CounterMetricFamily if known.total else GaugeMetricFamily
        metric = family(f"orsay_{name}", known.text, labels=known.labels)
        for values, value in values_of.items():
            metric.add_metric(values, value)
        yield metric


def _sandboxes(meter: SandboxMeter | None) -> Iterator[Metric]:
    if meter is None:
        return
    now = GaugeMetricFamily("orsay_sandboxes", "Sandboxes by state.", labels=["state"])
    for state, count in meter.states().items():
        now.add_metric([state], count)
    yield now
    counters = (
        (
            "orsay_sandboxes_started",
            "Sandboxes started: cold, or warm.",
            "start",
            STARTS,
            meter.started,
        ),
        ("orsay_sandboxes_ended", "Sandboxes that are over, by how.", "reason", END_REASONS, meter.ended),
        ("orsay_sandbox_kills", "Commands that were killed, by what for.", "reason", KILLS, meter.kills),
    )
    for name, text, label, known, counts in counters:
        family = CounterMetricFamily(name, text, labels=[label])
        for value in known:
            family.add_metric([value], counts[value])
        yield family
    yield _durations("orsay_sandbox_start_seconds", "Time to make a sandbox.", meter.starts, "start")
    yield _histogram("orsay_sandbox_command_seconds", "Time that a command in a sandbox ran.", meter.commands)


def _journal(journal: Writer | None) -> Iterator[Metric]:
    now = None if journal is None else journal.health
    state = "off" if now is None else now.state
    states = GaugeMetricFamily("orsay_journal_state", "State of the journal: 1 for one.", labels=["state"])
    for name in _JOURNAL_STATES:
        states.add_metric([name], float(name == state))
    yield states
    if now is None:
        return
    yield _one("orsay_journal_lag_seconds", "Age of the oldest row that is not written yet.", now.lag_s)
    yield _one("orsay_journal_rows_waiting", "Rows that are not written yet.", now.waiting)
    yield CounterMetricFamily("orsay_journal_rows_written", "Rows written.", value=now.committed)
    yield CounterMetricFamily("orsay_journal_rows_lost", "Rows given up.", value=now.lost)


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _durations(name: str, text: str, found: Mapping[str, Durations], label: str = "environment") -> Metric:
    family = HistogramMetricFamily(name, text, labels=[label])
    for value, durations in list(found.items()):
        family.add_metric([value], _buckets(durations), durations.sum_s)
    return family


def _histogram(name: str, text: str, durations: Durations) -> Metric:
    return HistogramMetricFamily(name, text, buckets=_buckets(durations), sum_value=durations.sum_s)


def _buckets(durations: Durations) -> list[tuple[str, int]]:
    bounds = [*map(floatToGoString, durations.bounds), "+Inf"]
    return list(zip(bounds, accumulate(durations.counts), strict=True))
