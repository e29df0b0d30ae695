"""Names, labels and descriptions of the metrics of runtimes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RUNTIME_METRICS", "RuntimeMetric"]


@dataclass(frozen=True, slots=True)
class RuntimeMetric:
    """Description of a metric. ``total``: a counter; else a gauge."""

    text: str
    labels: tuple[str, ...] = ("runtime",)
    total: bool = False


_BY_STATE = ("runtime", "state")
RUNTIME_METRICS: dict[str, RuntimeMetric] = {
    "runtime_sessions": RuntimeMetric("Sessions of each entry of orsay.toml."),
    "workers": RuntimeMetric("Worker processes by state.", _BY_STATE),
    "workers_started": RuntimeMetric("Worker processes that came up.", total=True),
    "workers_lost": RuntimeMetric("Worker processes that ended by themselves and were replaced.", total=True),
    "worker_start_failures": RuntimeMetric("Worker processes that did not come up.", total=True),
    "worker_memory_bytes": RuntimeMetric("Resident memory of all worker processes together."),
    "worker_stuck_calls": RuntimeMetric("Calls in workers that were given up and still run."),
    "containers": RuntimeMetric("Containers by state.", _BY_STATE),
    "containers_wanted": RuntimeMetric("Containers that should be up, spares among them."),
    "containers_up": RuntimeMetric("Containers whose server answers."),
    "container_sessions": RuntimeMetric("Sessions in containers."),
    "containers_started": RuntimeMetric("Containers that were begun.", total=True),
    "containers_lost": RuntimeMetric("Containers that ended or hung, and were replaced.", total=True),
    "container_start_failures": RuntimeMetric("Containers that did not come up.", total=True),
    "upstream_up": RuntimeMetric("Whether the server behind this one answers: 1 or 0."),
    "upstream_sessions": RuntimeMetric("Sessions at the server behind this one."),
    "upstream_outages": RuntimeMetric("How often the server behind this one went down.", total=True),
}
