"""Options for a server behind this one."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import SecretStr

__all__ = ["RemoteOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """Times are seconds."""

    api_key: SecretStr | None = None
    """API key for the upstream, sent as X-API-Key; clients of this server never see it."""
    ping_s: float = 60
    """A session that was quiet for so long is pinged, so that the upstream does not take it for idle."""
    health_s: float = 5
    """Time between looks at an upstream that is quiet, and the longest between those at one that is down."""
    start_wait_s: float = 10
    """Longest wait of ``start`` for the upstream to come up."""
    connect_timeout_s: float = 10
    request_timeout_s: float = 60
    """Silence after which a request fails that no author code answers."""
    silence_s: float = 45
    """Silence, comments included, after which a stream counts as broken."""
    hook_limit_s: float = 960
    """Silence after which a request fails that author code answers: a constructor, a prompt, tasks."""
    slow_after_s: float = 0.02
    """Duration after which a call at another make of upstream counts as slow; ours report it."""
    max_result_bytes: int = 64 * 1024 * 1024
