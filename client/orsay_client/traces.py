"""Trace context of a session: OpenTelemetry's active span, else a new trace."""

from __future__ import annotations

import sys

from orsay_protocol.trace import Traceparent

from .errors import OrsayClientError, ToolRefused

__all__ = ["Named", "current_traceparent"]


def current_traceparent() -> str:
    """W3C ``traceparent`` of the active OpenTelemetry span; without one, of a new trace."""
    api = sys.modules.get("opentelemetry.trace")  # a program with an active span has imported it
    if api is not None:
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            return str(
                Traceparent(
                    f"{context.trace_id:032x}", f"{context.span_id:016x}", f"{context.trace_flags & 0xFF:02x}"
                )
            )
    return str(Traceparent.new())


class Named:
    """Context manager that adds the trace id to errors, to find them in the server's logs."""

    __slots__ = ("trace",)

    def __init__(self, trace: str) -> None:
        self.trace = trace

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OrsayClientError) and self.trace and not error.trace:
            error.trace = self.trace
            if not isinstance(error, ToolRefused):  # an answer for the model
                error.add_note(f"trace {self.trace}")
