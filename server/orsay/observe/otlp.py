"""Conversion of Prometheus families to OpenTelemetry metrics, so that each value is counted once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import pairwise

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family

__all__ = ["to_otlp"]

_NS = 1_000_000_000
_CUMULATIVE = AggregationTemporality.CUMULATIVE


def to_otlp(families: Iterable[Family], resource: Resource, scope: str, started_at: float) -> MetricsData:
    """Metrics for an exporter, under the same names but without ``_total``, which a collector adds
    again for Prometheus. ``started_at``: start of the counts, in seconds since 1970.
    """
    times = int(started_at * _NS), time.time_ns()
    metrics = [metric for family in families if (metric := _metric(family, times)) is not None]
    found = ScopeMetrics(InstrumentationScope(scope), metrics, "")
    return MetricsData([ResourceMetrics(resource, [found], "")])


def _metric(family: Family, times: tuple[int, int]) -> Metric | None:
    data: Sum | Gauge | Histogram
    if family.type == "histogram":
        data = Histogram(list(_histograms(family, times)), _CUMULATIVE)
    elif family.type == "counter":
        data = Sum(_numbers(family, times), _CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(_numbers(family, times))
    if not data.data_points:
        return None
    return Metric(family.name, family.documentation, "", data)


def _numbers(family: Family, times: tuple[int, int]) -> list[NumberDataPoint]:
    return [NumberDataPoint(dict(sample.labels), *times, float(sample.value)) for sample in family.samples]


def _histograms(family: Family, times: tuple[int, int]) -> Iterator[HistogramDataPoint]:
    """One data point for each set of labels; samples of a set are adjacent, their buckets in order."""
    found: dict[tuple[tuple[str, str], ...], tuple[list[tuple[float, float]], list[float]]] = {}
    for sample in family.samples:
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        buckets, total = found.setdefault(labels, ([], []))
        if sample.name.endswith("_bucket"):
            buckets.append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            total.append(sample.value)
    for labels, (buckets, total) in found.items():
        seen = [0, *(int(count) for _, count in buckets)]
        yield HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=times[0],
            time_unix_nano=times[1],
            count=seen[-1],
            sum=total[0] if total else 0.0,
            bucket_counts=[after - before for before, after in pairwise(seen)],
            explicit_bounds=[bound for bound, _ in buckets[:-1]],
            min=None,  # type: ignore[arg-type]  # optional on the wire
            max=None,  # type: ignore[arg-type]
        )
