"""What a runtime hands back for a tool call or a group score, ready for the wire."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import Faulted

__all__ = ["Outcome"]


@dataclass(slots=True)  # not frozen: that makes the one object of every call twice as dear
class Outcome:
    """An answer (``wire`` holds the events ``chunk`` and ``end``) or a fault, never both."""

    wire: bytes = b""
    reward: float | None = None
    finished: bool = False
    fault: Faulted | None = None
