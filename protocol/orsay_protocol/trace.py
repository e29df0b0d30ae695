"""W3C Trace Context: the header ``traceparent``."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

__all__ = ["TRACEPARENT", "Traceparent", "new_trace", "read_traceparent"]

TRACEPARENT = "traceparent"
"""Name of the header; in lower case, as the standard wants it sent."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16


class Traceparent(NamedTuple):
    """``trace`` is 32 hex digits, ``span`` 16, ``flags`` 2; ``str`` gives the header's value."""

    trace: str
    span: str
    flags: str = "01"

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-{self.flags}"

    @classmethod
    def new(cls) -> Traceparent:
        """The beginning of a trace, with fresh random ids."""
        return cls(new_trace(), _drawn(8))


def read_traceparent(header: str | None) -> Traceparent | None:
    """Parse the header; None where it is missing or not valid, as the standard asks."""
    found = _FORM.fullmatch(header.strip()) if header else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or trace == _NO_TRACE or span == _NO_SPAN or (version == "00" and more):
        return None
    return Traceparent(trace, span, flags if version == "00" else f"{int(flags, 16) & 1:02x}")


def new_trace() -> str:
    """A fresh random trace id."""
    return _drawn(16)


def _drawn(size: int) -> str:
    while True:
        drawn = os.urandom(size)
        if any(drawn[:8]):  # all zero means none
            return drawn.hex()
