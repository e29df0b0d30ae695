"""Suggestions of similar names for an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]

_CUTOFF = 0.6  # difflib's ratio; still includes two swapped letters in a word of four
_MARGIN = 0.1  # maximum distance to the most similar name
_MOST_LISTED = 8


def did_you_mean(name: str, known: Iterable[str], *, listed: bool = True) -> str:
    """End of an error about an unknown ``name``: up to three similar names.

    Without similar names: up to eight known names if ``listed``, else nothing. Private names are never shown.
    """
    names = sorted({each for each in known if not each.startswith("_")})
    close = _similar(name, names)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    if not listed or not names:
        return ""
    more = ", …" if len(names) > _MOST_LISTED else ""
    return f"; there are: {', '.join(names[:_MOST_LISTED])}{more}"


def _similar(name: str, names: list[str]) -> list[str]:
    """At most three similar names, most similar first."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=_CUTOFF)
    ratios = [difflib.SequenceMatcher(None, each, name).ratio() for each in close]
    return [each for each, ratio in zip(close, ratios, strict=True) if ratio >= ratios[0] - _MARGIN]
