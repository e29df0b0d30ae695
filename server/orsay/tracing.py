"""Context variable with the current session's trace id and redactor, for log lines of author code."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from orsay_protocol.redact import NOTHING, Redactor

__all__ = [
    "NOWHERE",
    "Origin",
    "SessionSandboxes",
    "current",
    "current_hide",
    "current_trace",
    "mark_last_resort",
    "mark_log_records",
    "within",
]


class SessionSandboxes(Protocol):
    """The sandboxes that the code of a session has made."""

    @property
    def is_used(self) -> bool:
        """True where there is something to close."""

    async def close(self) -> None:
        """End them; safe to call twice."""


class Origin(NamedTuple):
    """Trace id, redactor and sandboxes of a session."""

    trace: str
    hide: Redactor
    sandboxes: SessionSandboxes | None = None
    """None where its server has none."""


NOWHERE = Origin("", NOTHING)
"""Value outside of a session."""

current: contextvars.ContextVar[Origin] = contextvars.ContextVar("orsay_origin", default=NOWHERE)
"""Current session: set while its tasks and threads are started, which inherit it."""


def current_hide() -> Redactor:
    """Redactor of the current session; one that does nothing outside of a session."""
    return current.get().hide


def current_trace() -> str:
    """Trace id of the current session, empty outside of a session."""
    return current.get().trace


class _Within:
    __slots__ = ("_origin", "_token")

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def __enter__(self) -> None:
        self._token = current.set(self._origin)

    def __exit__(self, *_: object) -> None:
        current.reset(self._token)


def within(origin: Origin) -> contextlib.AbstractContextManager[None]:
    """Set the current session for tasks and threads that are started inside the block."""
    return _Within(origin)


class _LastResort(logging.Formatter):
    """Python's last-resort handler, which writes the message alone, with the trace appended."""

    def format(self, record: logging.LogRecord) -> str:
        trace = current_trace()
        text = super().format(record)
        return f"{text} trace={trace}" if trace else text


class _Marked:
    """Log record factory that adds the attribute ``trace``."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        record.trace = current_trace()
        return record


def mark_log_records() -> None:
    """Add the attribute ``trace`` to all log records of this process, for authors' formatters.

    Safe to call twice.
    """
    make = logging.getLogRecordFactory()
    if not isinstance(make, _Marked):
        logging.setLogRecordFactory(_Marked(make))


def mark_last_resort() -> None:
    """Show the trace in lines of Python's last-resort handler, for author code without a logging setup."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_LastResort())
