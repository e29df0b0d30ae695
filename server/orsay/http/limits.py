"""Limits of connections, far beyond ordinary clients, and rate-limited log lines about violations."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..logs import get_logger

__all__ = ["HEADERS", "HEAD_BYTES", "PIPELINED", "Door", "Notes"]

HEAD_BYTES = 64 * 1024
"""Size of a request's head, and of the framing between two pieces of a body: chunk sizes, extensions,
trailers.
"""
HEADERS = 100
PIPELINED = 32
"""Requests of one connection that wait for the answer of an earlier one."""

_log = get_logger(__name__)
_BETWEEN_LINES_S = 10.0


@dataclass(slots=True)
class Notes:
    """Rate limiter for log lines that clients can cause: one line in ten seconds for each event."""

    _lines: dict[str, _Line] = field(default_factory=dict)

    def add(self, event: str, *, serious: bool = False, **about: object) -> None:
        """Log the event, unless its last line is recent; ``times`` counts the events since that line."""
        line = self._lines.setdefault(event, _Line())
        line.times += 1
        now = time.monotonic()
        if line.at is not None and now - line.at < _BETWEEN_LINES_S:
            return
        line.at = now
        times, line.times = line.times, 0
        (_log.warning if serious else _log.info)(event, times=times, **about)


@dataclass(slots=True)
class Door:
    """State that the connections of one server share: limits, the number being refused, and the log."""

    head_time_s: float
    transfer_time_s: float
    connections: int
    descriptors: int
    """Number of the first socket that is reserved for the server itself."""
    lingering: int = 0
    """Connections that got their last answer, and are not closed yet."""
    _notes: Notes = field(default_factory=Notes)

    @property
    def lingering_limit(self) -> int:
        """Number of refused connections that are kept open until their clients have read the answer."""
        return max(8, min(256, self.connections // 8))

    def is_full(self, connections: int, descriptor: int) -> bool:
        """True if a new connection is over the limit; ``connections`` counts it too."""
        return connections - self.lingering > self.connections or descriptor >= self.descriptors

    def note(self, event: str, *, serious: bool = False, **about: object) -> None:
        """Log the event, within the rate of ``Notes``."""
        self._notes.add(event, serious=serious, **about)


@dataclass(slots=True)
class _Line:
    at: float | None = None
    times: int = 0
