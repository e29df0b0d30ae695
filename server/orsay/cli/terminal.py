"""Terminal output of all verbs, with control characters escaped.

Text from servers, environments, models, journals and file names is untrusted. No other module of the command
line prints or makes a console.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..plain import safe

__all__ = ["console", "echo", "echo_error", "write_lines"]


class _Console(Console):
    """Console that escapes control characters in rendered text; rich's own control codes stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else safe(text), style, control)


def console(*, stderr: bool = False) -> Console:
    """Console for rich output, without markup in brackets and emoji codes."""
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def echo(text: str = "", *, end: str = "\n") -> None:
    """Print on standard output."""
    print(safe(text), end=end)


def echo_error(verb: str, text: str) -> None:
    """Print an error or a note of ``verb`` on standard error."""
    gap = "" if text.startswith("\n") else " "
    print(safe(f"orsay {verb}:{gap}{text}"), file=sys.stderr)


def write_lines(data: bytes) -> None:
    """Write JSON lines to standard output: unchanged, or escaped if it is a terminal."""
    if sys.stdout.isatty():
        data = safe(data.decode(errors="replace")).encode()
    sys.stdout.buffer.write(data)
