"""Retry policy: the one module that decides whether to try again, and after what delay."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from orsay_protocol.headers import BACKEND_STATE

__all__ = ["Attempts", "Retry", "is_starting", "retry_after_s"]

_REFUSED = frozenset({429, 503})
_PROXY = frozenset({502, 504})
_jitter = random.SystemRandom().random  # the shared generator may be seeded by the caller


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Retry limits for all requests of a client.

    ``tries`` is the number of consecutive attempts; a stream that lived for ``progress_s`` resets it, so that
    a call of hours survives a proxy that closes connections every minute.
    """

    tries: int = 6
    first_delay_s: float = 0.5
    max_delay_s: float = 8.0
    max_retry_after_s: float = 60.0
    """Longest delay: when a server asks for more, the request fails at once with the server's answer."""
    starting_ride_out_s: float = 600.0
    """Longest wait for an environment whose setup still runs."""
    progress_s: float = 5.0

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise ValueError(f"tries must be at least 1 (1 means no retry); got {self.tries}")


class Attempts:
    """Failure counter of one request. Each method returns the delay in seconds, or None to give up."""

    def __init__(
        self,
        retry: Retry,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = _jitter,
    ) -> None:
        self._retry = retry
        self._clock = clock
        self._jitter = jitter
        self._started = clock()
        self._failures = 0

    @property
    def failures(self) -> int:
        """Consecutive failures."""
        return self._failures

    def progress(self) -> None:
        """Reset the failures after progress."""
        self._failures = 0

    def after_break(self) -> float | None:
        """Delay after a failed or broken connection."""
        self._failures += 1
        if self._failures >= self._retry.tries:
            return None
        return self._backoff()

    def after_answer(
        self, status: int, headers: Mapping[str, str], *, only_unexecuted: bool = False
    ) -> float | None:
        """Delay after an HTTP answer; None also for every status that a retry cannot change.

        ``only_unexecuted`` limits retries to answers which prove that nothing ran.
        """
        if is_starting(status, headers):
            return self._ride_out(headers)
        ambiguous = status in _PROXY or status == 503
        if status not in _REFUSED | _PROXY or (only_unexecuted and ambiguous):
            return None
        asked = retry_after_s(headers)
        if asked is not None and asked > self._retry.max_retry_after_s:
            return None
        delay = self.after_break()
        if delay is None or asked is None:
            return delay
        return max(delay, self._spread(asked))

    def _ride_out(self, headers: Mapping[str, str]) -> float | None:
        left = self._started + self._retry.starting_ride_out_s - self._clock()
        if left <= 0:
            return None
        asked = retry_after_s(headers)
        return min(self._spread(self._retry.first_delay_s if asked is None else asked), left)

    def _backoff(self) -> float:
        delay: float = self._retry.first_delay_s * 2 ** (self._failures - 1)
        return min(delay, self._retry.max_delay_s) * (0.5 + 0.5 * self._jitter())

    def _spread(self, delay_s: float) -> float:
        """Add jitter, so that a thousand sessions do not retry at the same time."""
        return delay_s * (1 + 0.25 * self._jitter())


def is_starting(status: int, headers: Mapping[str, str]) -> bool:
    """True if the server answered that setup still runs and nothing was executed."""
    return status == 503 and headers.get(BACKEND_STATE.lower(), "").strip().lower() == "starting"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for, in either of its two forms; None without a usable one."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except (ValueError, IndexError):
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        seconds = (when - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if seconds < float("inf") else None
