"""Options for a server behind this one."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import SecretStr

__all__ = ["RemoteOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """Options of a connection to an upstream. Times in seconds."""

    api_key: SecretStr | None = None
    """API key for the upstream, sent as X-API-Key and never shown to clients."""
    ping_s: float = 60
    """Idle time after which a session is pinged, so that the upstream does not expire it."""
    health_s: float = 5
    """Interval of health checks for an idle upstream, and maximum interval for one that is down."""
    start_wait_s: float = 10
    """Longest wait of ``start`` for the upstream to come up."""
    connect_timeout_s: float = 10
    request_timeout_s: float = 60
    """Read timeout of requests that run no author code."""
    silence_s: float = 45
    """Read timeout of streams; comments count as data."""
    hook_limit_s: float = 960
    """Read timeout of requests that run author code: a constructor, a prompt, tasks."""
    slow_after_s: float = 0.02
    """Duration after which a call counts as slow at upstreams that do not report it; Orsay servers do."""
    max_result_bytes: int = 64 * 1024 * 1024
