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
    """Spans and metrics on their way to a collector."""

    def traced(self, runtime: Runtime) -> Runtime:
        """The runtime, with a span for each session and call in it."""

    def start(self, observed: Observed) -> None:
        """Send the metrics of ``observed`` from now on."""

    async def close(self) -> None:
        """Send what is left, within a bounded time."""


def make_telemetry(variables: Mapping[str, str], *, version: str) -> Telemetry | None:
    """The sender, or None when nothing is to be sent. Raises ConfigError, also when packages are missing."""
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
