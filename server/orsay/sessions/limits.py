"""Bounds of sessions and of their calls, as the settings give them; times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CallLimits", "SessionLimits"]


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of all sessions together, and of what runs in them."""

    max_sessions: int
    max_sessions_per_owner: int | None
    max_calls: int
    idle_limit_s: float
    lifetime_limit_s: float
    call_time_limit_s: float
    setup_wait_s: float
    load_wait_s: float
    client_grace_s: float
    gone_memory_s: float
    max_calls_per_owner: int | None = None


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Bounds of the results that are kept for repeated requests."""

    results_per_session: int
    bytes_per_session: int
    bytes_in_all: int
    age_s: float
