"""Text that no JSON in UTF-8 can carry, as models and old terminals write it."""

from __future__ import annotations

__all__ = ["well_formed"]


def well_formed(text: str) -> str:
    """``text`` with U+FFFD for each half of a surrogate pair that stands alone; whole pairs are joined."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
