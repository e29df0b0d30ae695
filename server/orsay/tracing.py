"""The session whose code runs now, by its trace and secrets: for lines written where none is at hand."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from orsay_protocol.redact import NOTHING, Redactor

__all__ = [
    "NOWHERE",
    "Origin",
    "current",
    "current_hide",
    "current_trace",
    "mark_last_resort",
    "mark_log_records",
    "within",
]


class Origin(NamedTuple):
    """The trace of a session, and what takes its secrets out of texts."""

    trace: str
    hide: Redactor


NOWHERE = Origin("", NOTHING)
"""Outside of a session."""

current: contextvars.ContextVar[Origin] = contextvars.ContextVar("orsay_origin", default=NOWHERE)
"""The session whose code runs here: set while its tasks and threads are started, which keep it."""


def current_hide() -> Redactor:
    """Takes the secrets of the session whose code runs here out of texts; nothing outside of one."""
    return current.get().hide


def current_trace() -> str:
    """The trace id of the session whose code runs here, empty outside of one."""
    return current.get().trace


@contextlib.contextmanager
def within(origin: Origin) -> Iterator[None]:
    """Assign tasks and threads that are started inside the block to that session."""
    token = current.set(origin)
    try:
        yield
    finally:
        current.reset(token)


class _LastResort(logging.Formatter):
    """The bare message, as Python writes it where nobody set up logging, with the trace behind it."""

    def format(self, record: logging.LogRecord) -> str:
        trace = current_trace()
        text = super().format(record)
        return f"{text} trace={trace}" if trace else text


class _Marked:
    """Makes records of ``logging`` that have the attribute ``trace``."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        record.trace = current_trace()
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
