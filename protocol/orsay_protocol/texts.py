"""Repair of text with lone surrogates, which UTF-8 cannot encode."""

from __future__ import annotations

__all__ = ["well_formed"]


def well_formed(text: str) -> str:
    """``text`` with U+FFFD for each lone surrogate; surrogate pairs become one character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
