"""A collector of OpenTelemetry on a real socket: keeps what arrives, parsed by the protocol's own types."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

__all__ = ["Collector", "collecting", "plain"]


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as a dictionary."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


class Collector:
    """What arrived so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.traces: list[Any] = []
        self.metrics: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.raw = b""

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def resources(self) -> list[dict[str, Any]]:
        return [plain(each.resource.attributes) for request in self.traces for each in request.resource_spans]

    def points(self, name: str) -> list[Any]:
        """Of that metric, those of the last message that has it."""
        for request in reversed(self.metrics):
            for resource in request.resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    if metric.name == name:
                        return list(getattr(metric, metric.WhichOneof("data")).data_points)
        return []

    def until(self, condition: Callable[[], Any], *, timeout_s: float = 60.0) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, "it did not arrive"
            time.sleep(0.02)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that answers on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            answer: Any = ExportTraceServiceResponse()
            if self.path == "/v1/traces":
                collector.traces.append(ExportTraceServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                answer = ExportMetricsServiceResponse()
                collector.metrics.append(ExportMetricsServiceRequest.FromString(body))
            collector.headers.append(dict(self.headers))
            collector.raw += body
            content = answer.SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None: ...

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{listening.server_address[1]}")
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
