"""Terminal output of the run: the current part, and the reward as a growing curve."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

__all__ = ["Curve", "Screen"]

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8


class Curve:
    """Rewards between 0 and 1 as columns of ``_HEIGHT`` lines, two characters wide."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.rewards: list[float] = []

    def lines(self) -> list[str]:
        """Top line first, each with its place on the scale."""
        found = []
        for line in reversed(range(_HEIGHT)):
            eighths = [round(reward * _HEIGHT * 8) - line * 8 for reward in self.rewards]
            columns = "".join(2 * _BLOCKS[min(max(number, 0), 8)] for number in eighths)
            scale = {_HEIGHT - 1: "1.0", _HEIGHT // 2: "0.5", 0: "0.0"}.get(line, "")
            found.append(f"{scale:>4} ┤{columns:<{2 * self.length}}")
        return found

    def __rich__(self) -> Group:
        title = f"reward of each batch ({len(self.rewards)} of {self.length})"
        last = (
            f"{sum(self.rewards[-5:]) / len(self.rewards[-5:]):.2f} over the last five"
            if self.rewards
            else ""
        )
        return Group(
            Text(title, style="bold"),
            *(Text(line, style="green") for line in self.lines()),
            Text(f"     {last}"),
        )


class Screen:
    """Prints each part with its duration; on a terminal, a curve is drawn in place."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.seconds: dict[str, float] = {}
        self._curve: Curve | None = None
        self._live: Live | None = None

    @contextmanager
    def part(self, name: str, text: str) -> Iterator[None]:
        """One part of the run, timed under ``name``."""
        self.say(text, style="cyan")
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def say(self, text: str, style: str = "") -> None:
        """A line that stays."""
        self.console.print(text, style=style, soft_wrap=True)

    @contextmanager
    def curve(self, length: int) -> Iterator[Curve]:
        """A curve for as long as the block; without a terminal, ``show`` prints a line instead."""
        self._curve = Curve(length)
        if not self.console.is_terminal:
            yield self._curve
            return
        with Live(self._curve, console=self.console, auto_refresh=False) as self._live:
            yield self._curve
        self._live = None

    def show(self, reward: float, note: str) -> None:
        """The next batch."""
        assert self._curve is not None
        self._curve.rewards.append(reward)
        if self._live is not None:
            self._live.update(self._curve, refresh=True)
        else:
            bar = "█" * round(reward * 40)
            self.say(f"  batch {len(self._curve.rewards):>3}  reward {reward:.3f}  {bar:<40}  {note}")

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names and values, one pair a line."""
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self.say(f"  {name:<{width}}  {value}")
