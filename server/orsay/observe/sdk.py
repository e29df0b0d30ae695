"""Set-up of OpenTelemetry's SDK: batched spans and periodic metrics, both by OTLP over HTTP.

The SDK itself reads endpoints, headers, sampling, resource attributes and other options from the standard
variables. No state is global, so other users of OpenTelemetry in this process are not affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from ..logs import get_logger
from ..runtimes.base import Runtime
from .metrics import gather
from .observed import Observed
from .otel_settings import OtelSettings
from .otlp import to_otlp
from .traced import TracedRuntime

__all__ = ["OpenTelemetry"]

_log = get_logger(__name__)
_SCOPE = "orsay"
_CLOSE_S = 5.0


class _Ids(RandomIdGenerator):
    """Id generator: random ids, except for the trace id of a session, which exists already."""

    def __init__(self) -> None:
        self.trace: contextvars.ContextVar[int] = contextvars.ContextVar("orsay_span_trace", default=0)

    def generate_trace_id(self) -> int:
        return self.trace.get() or super().generate_trace_id()


class OpenTelemetry:
    """See ``telemetry.Telemetry``."""

    def __init__(self, settings: OtelSettings, *, version: str) -> None:
        self._settings = settings
        resource = Resource.create({SERVICE_VERSION: version})
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "orsay"}))
        self._resource = resource
        self._ids = _Ids()
        self._spans: TracerProvider | None = None
        if settings.traces:
            self._spans = TracerProvider(
                resource=resource, id_generator=self._ids, shutdown_on_exit=False
            )  # this module controls the order of shutdown
            self._spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._metrics = OTLPMetricExporter() if settings.metrics else None
        self._observed: Observed | None = None
        self._task: asyncio.Task[None] | None = None

    def traced(self, runtime: Runtime) -> Runtime:
        if self._spans is None:
            return runtime
        return TracedRuntime(runtime, self._spans.get_tracer(_SCOPE), self._ids.trace)

    def start(self, observed: Observed) -> None:
        self._observed = observed
        if self._metrics is not None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.every_s)
            try:
                await self._export()
            except Exception:
                _log.exception("metrics_export_failed")

    async def _export(self) -> None:
        assert self._observed is not None and self._metrics is not None
        families = await gather(self._observed)
        data = to_otlp(families, self._resource, _SCOPE, self._observed.started_at)
        await asyncio.to_thread(self._metrics.export, data)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        closing = asyncio.ensure_future(self._close())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(closing), _CLOSE_S)
            return
        _log.warning("telemetry_lost", reason=f"the collector took nothing for {_CLOSE_S:g} s")
        if self._metrics is not None:
            self._metrics.shutdown()

    async def _close(self) -> None:
        try:
            if self._task is not None:
                await self._export()
        except Exception:
            _log.exception("metrics_export_failed")
        if self._spans is not None:
            await asyncio.to_thread(self._spans.shutdown)
        if self._metrics is not None:
            await asyncio.to_thread(self._metrics.shutdown)
