"""Decorator of a runtime that makes spans: one for each session, with children for its setup and calls.

The span of a session belongs to the session's trace, below the client's span if known; servers and containers
behind this one receive it as the parent of their spans.
"""

from __future__ import annotations

import contextvars
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
)
from orsay_protocol.faults import FaultClass
from orsay_protocol.redact import Redactor, redactor
from orsay_protocol.trace import Traceparent, read_traceparent
from pydantic_core import from_json

from ..errors import Faulted, Refused
from ..runtimes.base import (
    Handle,
    Listener,
    OnResult,
    OpenSession,
    Operation,
    Progress,
    Runtime,
    RuntimeDecorator,
    Stop,
)
from ..runtimes.outcome import Outcome
from ..sessions.session import Session

__all__ = ["TracedRuntime"]

_LONGEST = 100  # characters of a tool's name, which a client may have made up


class TracedRuntime(RuntimeDecorator):
    """Wrapper of ``runtime``. ``root`` gets the trace id of a span without a parent."""

    def __init__(self, runtime: Runtime, tracer: Tracer, root: contextvars.ContextVar[int]) -> None:
        super().__init__(runtime)
        self._tracer = tracer
        self._root = root

    async def open(self, request: OpenSession, listener: Listener) -> TracedHandle:
        span = self._begin(request, listener)
        context = span.get_span_context()
        onward = Traceparent(
            f"{context.trace_id:032x}", f"{context.span_id:016x}", f"{context.trace_flags & 0xFF:02x}"
        )
        traced = _TracedListener(listener, span)
        try:
            handle = await self._runtime.open(request.model_copy(update={"traceparent": str(onward)}), traced)
        except BaseException as error:
            _fail(span, error)
            _end(span)
            raise
        return TracedHandle(handle, self._tracer, span, redactor(request.secrets.values()))

    def _begin(self, request: OpenSession, listener: Listener) -> Span:
        parent = read_traceparent(request.traceparent)
        attributes: dict[str, str | int] = {"orsay.environment": request.key}
        if isinstance(listener, Session):
            session = listener.hide.plain(listener.sid)
            attributes |= {"orsay.environment": listener.info.name, "orsay.session": session}
        if request.split is not None and request.index is not None:
            attributes |= {"orsay.split": request.split, "orsay.index": request.index}
        if request.run:
            attributes["orsay.run"] = request.run
        context = trace.set_span_in_context(trace.INVALID_SPAN) if parent is None else _context(parent)
        token = self._root.set(int(request.trace or "0", 16))
        try:
            return self._tracer.start_span(
                f"session {attributes['orsay.environment']}",
                context,
                SpanKind.SERVER,
                attributes,
                record_exception=False,
            )
        finally:
            self._root.reset(token)


class _TracedListener:
    """Listener that notes the events of a session in its span."""

    __slots__ = ("_listener", "_span")

    def __init__(self, listener: Listener, span: Span) -> None:
        self._listener = listener
        self._span = span

    def setup_ended(self, error: Faulted | Refused | None) -> None:
        self._listener.setup_ended(error)
        self._span.add_event("setup ended")
        if error is not None:
            _fail(self._span, error)

    def lost(self, fault: FaultClass, reason: str) -> None:
        self._listener.lost(fault, reason)
        _fail(self._span, Faulted(fault, reason))
        _end(self._span)


class TracedHandle:
    """An open session with its span, which ends with it."""

    __slots__ = ("_context", "_handle", "_hide", "_span", "_tracer")

    def __init__(self, handle: Handle, tracer: Tracer, span: Span, hide: Redactor) -> None:
        self._handle = handle
        self._hide = hide
        self._tracer = tracer
        self._span = span
        self._context = trace.set_span_in_context(span)

    def start(
        self,
        operation: Operation,
        body: bytes,
        on_result: OnResult,
        *,
        limit_s: float,
        progress: Progress | None = None,
    ) -> Stop:
        name: str = operation
        attributes: dict[str, str] = {}
        if operation == "call":
            tool = self._hide.plain(str(from_json(body)["name"]))[:_LONGEST]
            name, attributes = f"call {tool}", {"orsay.tool": tool}
        span = self._tracer.start_span(name, self._context, SpanKind.INTERNAL, attributes)

        def ended(value: Any, error: Faulted | Refused | None) -> None:
            on_result(value, error)  # gives a fault its id
            _finish(span, value, error)

        return self._handle.start(operation, body, ended, limit_s=limit_s, progress=progress)

    async def close(self) -> None:
        try:
            await self._handle.close()
        except BaseException as error:
            _fail(self._span, error)
            raise
        finally:
            _end(self._span)


def _finish(span: Span, value: Any, error: Faulted | Refused | None) -> None:
    if isinstance(value, Outcome):
        for name in ("reward", "queue_s", "run_s"):
            if (number := getattr(value, name)) is not None:
                span.set_attribute(f"orsay.{name}", number)
        span.set_attribute("orsay.finished", value.finished)
        error = error or value.fault
    if error is not None:
        _fail(span, error)
    _end(span)


def _end(span: Span) -> None:
    if span.is_recording():  # the SDK logs a warning on a second end
        span.end()


def _fail(span: Span, error: BaseException) -> None:
    """Mark a span as failed, with the class of the fault; the text is in the log, under the fault's id."""
    if not span.is_recording():
        return
    found = error.fault if isinstance(error, Faulted) else getattr(error, "code", type(error).__name__)
    span.set_attribute("orsay.fault", str(found))
    if isinstance(error, Faulted) and error.fault_id:
        span.set_attribute("orsay.fault_id", error.fault_id)
    span.set_status(Status(StatusCode.ERROR, str(found)))


def _context(parent: Traceparent) -> Any:
    """Context of a remote parent span."""
    found = SpanContext(
        int(parent.trace, 16),
        int(parent.span, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(parent.flags, 16)),
    )
    return trace.set_span_in_context(NonRecordingSpan(found))
