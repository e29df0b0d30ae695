"""Standard output and error of a process that runs environment code, without the secrets of its sessions.

What Python code writes goes through here: ``print``, ``logging``, warnings, tracebacks of threads. What is
written to the descriptors past ``sys.stdout`` and ``sys.stderr``, by other programs for one, does not.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping

from orsay_protocol.redact import Redactor, latest, redact, redactor

from ...tracing import current_hide, current_trace

__all__ = ["Guard", "guard_output"]


class Guard:
    """Knows the secrets that came to this process lately."""

    def __init__(self) -> None:
        self._lately: tuple[Redactor, ...] = ()

    def remember(self, secrets: Mapping[str, str]) -> None:
        """A session with these begins. They are remembered beyond its end: threads may live longer."""
        if secrets:
            hide = redactor(secrets.values())
            self._lately = latest((hide, *self._lately))

    def clean(self, text: str) -> str:
        """The text without the secrets of the session whose code runs here; of all sessions where none is
        known.
        """
        hide = current_hide()
        if hide or current_trace():
            return hide.plain(text)
        return redact(text, self._lately)


class _Guarded(io.TextIOWrapper):
    """A stream on the bytes of another one, which is not used any more."""

    def __init__(self, stream: io.TextIOWrapper, clean: Callable[[str], str]) -> None:
        encoding, errors = stream.encoding, stream.errors
        lines, through = stream.line_buffering, stream.write_through
        super().__init__(stream.detach(), encoding, errors, line_buffering=lines, write_through=through)
        self._clean = clean

    def write(self, text: str, /) -> int:
        super().write(self._clean(text))
        return len(text)


def guard_output() -> Guard:
    """Redact ``sys.stdout`` and ``sys.stderr`` of this process from now on."""
    guard = Guard()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            guarded = _Guarded(stream, guard.clean)
            setattr(sys, name, guarded)
            setattr(sys, f"__{name}__", guarded)  # its bytes have gone to the new one
    return guard
