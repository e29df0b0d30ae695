"""Output to the terminal: everything that a verb prints goes through here, and nothing steers it.

What servers, environments, models, journals and names of files hold is shown as text. No other module of the
command line prints or makes a console.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ..plain import safe

__all__ = ["console", "echo", "echo_error", "write_lines"]


class _Console(Console):
    """Spells out what would steer the terminal in all that is rendered; rich's own controls stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else safe(text), style, control)


def console(*, stderr: bool = False) -> Console:
    """Console for output that rich lays out. Brackets in text are no markup, and colons no emoji."""
    return _Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def echo(text: str = "", *, end: str = "\n") -> None:
    """Print on standard output."""
    print(safe(text), end=end)


def echo_error(verb: str, text: str) -> None:
    """Print on standard error why ``verb`` did not do what was asked, or what should be known of it."""
    gap = "" if text.startswith("\n") else " "
    print(safe(f"orsay {verb}:{gap}{text}"), file=sys.stderr)


def write_lines(data: bytes) -> None:
    """Write JSON lines to standard output: byte for byte, unless a person looks at it."""
    if sys.stdout.isatty():
        data = safe(data.decode(errors="replace")).encode()
    sys.stdout.buffer.write(data)
