"""The session whose code runs now, by its trace and secrets: for lines written where none is at hand."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Callable
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


class _Within:
    __slots__ = ("_origin", "_token")

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def __enter__(self) -> None:
        self._token = current.set(self._origin)

    def __exit__(self, *_: object) -> None:
        current.reset(self._token)


def within(origin: Origin) -> contextlib.AbstractContextManager[None]:
    """Assign tasks and threads that are started inside the block to that session."""
    return _Within(origin)


class _LastResort(logging.Formatter):
    """The bare message, as Python writes it without logging set up, with the trace behind it."""

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
    """Add the attribute ``trace`` to each record of ``logging`` in this process, for formatters of authors.

    Safe to call twice.
    """
    make = logging.getLogRecordFactory()
    if not isinstance(make, _Marked):
        logging.setLogRecordFactory(_Marked(make))


def mark_last_resort() -> None:
    """Show the trace in lines of Python's last-resort handler, where logging is not set up."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_LastResort())
