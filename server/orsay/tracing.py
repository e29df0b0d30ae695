"""The session whose code runs now, by its trace and secrets: for lines written where none is at hand."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable
from typing import Any

from orsay_protocol.redact import NOTHING, Redactor

__all__ = ["current_hide", "current_trace", "mark_last_resort", "mark_log_records", "within"]

_current: contextvars.ContextVar[str] = contextvars.ContextVar("orsay_trace", default="")


_hide: contextvars.ContextVar[Redactor] = contextvars.ContextVar("orsay_hide", default=NOTHING)


def current_hide() -> Redactor:
    """Takes the secrets of the session whose code runs here out of texts; nothing outside of one."""
    return _hide.get()


def current_trace() -> str:
    """The trace id of the session whose code runs here, empty outside of one."""
    return _current.get()


class within:
    """Assign tasks and threads that are started inside the block to that trace, with these secrets.

    Made for every call, so it is slim.
    """

    __slots__ = ("_hidden", "_hide", "_token", "_trace")

    def __init__(self, trace: str | None, hide: Redactor = NOTHING) -> None:
        self._trace = trace or ""
        self._hide = hide

    def __enter__(self) -> None:
        self._token = _current.set(self._trace)
        if self._hide:
            self._hidden = _hide.set(self._hide)

    def __exit__(self, *error: object) -> None:
        _current.reset(self._token)
        if self._hide:
            _hide.reset(self._hidden)


class _LastResort(logging.Formatter):
    """The bare message, as Python writes it where nobody set up logging, with the trace behind it."""

    def format(self, record: logging.LogRecord) -> str:
        trace = _current.get()
        text = super().format(record)
        return f"{text} trace={trace}" if trace else text


class _Marked:
    """Makes records of ``logging`` that have the attribute ``trace``."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        record.trace = _current.get()
        return record


def mark_log_records() -> None:
    """Give each record of ``logging`` in this process the attribute ``trace``, for formatters of authors.

    Safe to call twice.
    """
    make = logging.getLogRecordFactory()
    if not isinstance(make, _Marked):
        logging.setLogRecordFactory(_Marked(make))


def mark_last_resort() -> None:
    """Show the trace in lines of Python's last-resort handler, where nobody sets up logging."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_LastResort())
