"""The contract of telemetry, and its implementation ``sdk``, loaded only when variables ask for it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, cast

from ..errors import ConfigError
from ..runtimes.base import Runtime
from .observed import Observed
from .otel_settings import read_settings

__all__ = ["Telemetry", "make_telemetry"]


class Telemetry(Protocol):
    """Sender of spans and metrics to a collector."""

    def traced(self, runtime: Runtime) -> Runtime:
        """The runtime, wrapped to make a span for each session and call."""

    def start(self, observed: Observed) -> None:
        """Start sending the metrics of ``observed``."""

    async def close(self) -> None:
        """Send the remaining data, within a time limit."""


def make_telemetry(variables: Mapping[str, str], *, version: str) -> Telemetry | None:
    """The sender, or None if no signal is enabled. Raises ConfigError, also for missing packages."""
    settings = read_settings(variables)
    if settings is None:
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
    return cast("Telemetry", module.OpenTelemetry(settings, version=version))
