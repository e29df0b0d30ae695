"""Whether OpenTelemetry is asked for, by its own variables; ``sdk`` does what is asked."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from ..errors import ConfigError
from ..runtimes.base import Runtime
from .observed import Observed

__all__ = ["Telemetry", "Wanted", "make_telemetry", "wanted"]

_PROTOCOL = "http/protobuf"
_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be sent; metrics every ``every_s`` seconds."""

    traces: bool
    metrics: bool
    every_s: float


class Telemetry(Protocol):
    """Spans and metrics on their way to a collector."""

    def traced(self, runtime: Runtime) -> Runtime:
        """The runtime, with a span for each session and call in it."""

    def start(self, observed: Observed) -> None:
        """Send the figures of ``observed`` from now on."""

    async def close(self) -> None:
        """Send what is left, within a bounded time."""


def wanted(variables: Mapping[str, str]) -> Wanted | None:
    """What the variables of OpenTelemetry ask for; None for nothing. Raises ConfigError.

    A signal is sent when there is an endpoint for it, or its exporter is named.
    """
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    traces, metrics = _is_wanted(variables, "TRACES"), _is_wanted(variables, "METRICS")
    if not traces and not metrics:
        return None
    interval = variables.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    if interval and (not interval.isdigit() or not int(interval)):
        raise ConfigError(f"OTEL_METRIC_EXPORT_INTERVAL={interval}: give milliseconds, such as 60000")
    return Wanted(traces, metrics, int(interval) / 1000 if interval else _EVERY_S)


def _is_wanted(variables: Mapping[str, str], signal: str) -> bool:
    name = f"OTEL_{signal}_EXPORTER"
    exporter = variables.get(name, "").strip()
    if exporter == "none":
        return False
    if exporter not in ("", "otlp"):
        raise ConfigError(f"{name}={exporter}: Orsay sends by otlp; say that, or none")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    if not exporter and not any(variables.get(endpoint, "").strip() for endpoint in endpoints):
        return False
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = variables.get(name, "").strip()
        if protocol == _PROTOCOL:
            break
        if protocol:
            raise ConfigError(
                f"{name}={protocol}: Orsay sends OTLP as {_PROTOCOL}; say that, and an endpoint that takes"
                " it: collectors do on port 4318"
            )
    return True


def make_telemetry(variables: Mapping[str, str], *, version: str) -> Telemetry | None:
    """What sends, or None when nothing is to be sent. Raises ConfigError, also when packages are missing."""
    asked = wanted(variables)
    if asked is None:
        return None
    try:
        module = importlib.import_module(".sdk", __package__)
    except ModuleNotFoundError as exc:
        if exc.name is None or not exc.name.startswith("opentelemetry"):
            raise
        raise ConfigError(
            "variables of OpenTelemetry (OTEL_...) ask for traces or metrics, but its packages are missing:"
            " pip install 'orsay[otel]', or set OTEL_SDK_DISABLED=true"
        ) from exc
    return cast("Telemetry", module.OpenTelemetry(asked, version=version))
