"""Redaction of secrets from the standard output and error of a process that runs environment code.

Covers output of Python code: ``print``, ``logging``, warnings, tracebacks of threads. Output that bypasses
``sys.stdout`` and ``sys.stderr``, such as that of subprocesses, is not covered.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping

from orsay_protocol.redact import Redactor, latest, redact, redactor

from ...tracing import current_hide, current_trace

__all__ = ["Guard", "guard_output"]


class Guard:
    """Recent secrets of this process."""

    def __init__(self) -> None:
        self._lately: tuple[Redactor, ...] = ()

    def remember(self, secrets: Mapping[str, str]) -> None:
        """Add the secrets of a new session; they are kept beyond its end, as its threads may run longer."""
        if secrets:
            hide = redactor(secrets.values())
            self._lately = latest((hide, *self._lately))

    def clean(self, text: str) -> str:
        """The text without secrets: of the current session, or of all if none is current."""
        hide = current_hide()
        if hide or current_trace():
            return hide.plain(text)
        return redact(text, self._lately)


class _Guarded(io.TextIOWrapper):
    """A text stream that replaces another one on the same byte stream."""

    def __init__(self, stream: io.TextIOWrapper, clean: Callable[[str], str]) -> None:
        encoding, errors = stream.encoding, stream.errors
        lines, through = stream.line_buffering, stream.write_through
        super().__init__(stream.detach(), encoding, errors, line_buffering=lines, write_through=through)
        self._clean = clean

    def write(self, text: str, /) -> int:
        super().write(self._clean(text))
        return len(text)


def guard_output() -> Guard:
    """Replace ``sys.stdout`` and ``sys.stderr`` of this process by redacting streams."""
    guard = Guard()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            guarded = _Guarded(stream, guard.clean)
            setattr(sys, name, guarded)
            setattr(sys, f"__{name}__", guarded)  # the new stream owns the byte stream
    return guard
