"""Settings of OpenTelemetry, read from its standard variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ConfigError

__all__ = ["OtelSettings", "read_settings"]

_PROTOCOL = "http/protobuf"
_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class OtelSettings:
    """Signals to send; metrics every ``every_s`` seconds."""

    traces: bool
    metrics: bool
    every_s: float


def read_settings(variables: Mapping[str, str]) -> OtelSettings | None:
    """Settings from the variables of OpenTelemetry; None if they enable no signal. Raises ConfigError.

    A signal is enabled by an endpoint for it, or by the name of its exporter.
    """
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    traces, metrics = _is_wanted(variables, "TRACES"), _is_wanted(variables, "METRICS")
    if not traces and not metrics:
        return None
    interval = variables.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip()
    if interval and (not interval.isdigit() or not int(interval)):
        raise ConfigError(f"OTEL_METRIC_EXPORT_INTERVAL={interval}: give milliseconds, such as 60000")
    return OtelSettings(traces, metrics, int(interval) / 1000 if interval else _EVERY_S)


def _is_wanted(variables: Mapping[str, str], signal: str) -> bool:
    name = f"OTEL_{signal}_EXPORTER"
    exporter = variables.get(name, "").strip()
    if exporter == "none":
        return False
    if exporter not in ("", "otlp"):
        raise ConfigError(f"{name}={exporter}: Orsay sends by otlp; use that, or none")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    if not exporter and not any(variables.get(endpoint, "").strip() for endpoint in endpoints):
        return False
    for name in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = variables.get(name, "").strip()
        if protocol == _PROTOCOL:
            break
        if protocol:
            raise ConfigError(
                f"{name}={protocol}: Orsay sends OTLP as {_PROTOCOL}; use that, and an endpoint that takes"
                " it: collectors do on port 4318"
            )
    return True
