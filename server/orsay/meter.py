"""What sessions count as they go: read by ``observe`` when somebody asks."""

from __future__ import annotations

__all__ = ["Meter"]


class Meter:
    """Counts and durations since the start of the server. Cheap: it is told of every call."""

    def session_opened(self, environment: str) -> None:
        """A session's constructor has run."""

    def session_ended(self, environment: str, fault: str | None, age_s: float) -> None:
        """A session is over; ``fault`` is ``session_gone`` for one that was deleted or expired."""

    def call_ended(
        self,
        environment: str,
        tool: str,
        fault: str | None,
        total_s: float,
        queue_s: float | None,
        run_s: float | None,
        stream_s: float | None,
    ) -> None:
        """A call has its result; durations in seconds, as in ``journal.schema``."""
