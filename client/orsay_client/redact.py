"""Keeps keys and secrets out of error texts: servers quote what they were sent."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Redact"]

_SHORTEST = 4


class Redact:
    """Replaces known values in a text. Its repr shows none of them."""

    def __init__(self, values: Iterable[str | None] = ()) -> None:
        # The longest first: one secret may contain another.
        self._values = tuple(sorted({v for v in values if v and len(v) >= _SHORTEST}, key=len, reverse=True))

    def also(self, values: Iterable[str]) -> Redact:
        return Redact((*self._values, *values))

    def __call__(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, "***")
        return text

    def __repr__(self) -> str:
        return f"<Redact of {len(self._values)} values>"
